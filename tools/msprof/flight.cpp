#include "tools/msprof/flight.h"

#include <iostream>

#include "core/error.h"
#include "core/log.h"
#include "core/path_list.h"
#include "profile/report/flight_tables.h"
#include "tools/msprof/output_flags.h"

namespace ms::tools::msprof {
namespace {

class FlightVerb final : public Verb {
 public:
  const char* name() const override { return "flight"; }
  const char* help() const override {
    return "which rank makes a run hang, by the flight records of mstrain or PyTorch";
  }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof flight /dev/shm/msuite-flight-1000-4711-992");
    verb.add_option("inputs", inputs_,
                    "What the ranks of one run have recorded: a folder, or the files of its ranks. Of mstrain the "
                    "folder that its error names, or that of --flight-recorder-dump-path, also while it runs; of "
                    "PyTorch the dumps of its Flight Recorder (pickle or JSON), which end in the rank: nccl_trace_3. "
                    "- reads a list of paths from stdin, one per line")
        ->required();
    verb.add_option("--world-size", world_size_,
                    "Number of ranks of the run: those without a record are named; default: as the records say, which "
                    "PyTorch's do not always")
        ->check(CLI::Range(1, 1 << 24));
    verb.add_option("--operations", operations_,
                    "Also list the last operations of each rank, this many of each; default 0: no list")
        ->check(CLI::NonNegativeNumber);
    verb.add_flag("--strict", strict_, "Exit 3, after the result, if a file could not be read; default: warn");
    output_.add_json(verb);
    verb.add_option("--csv", output_.csv,
                    "Instead of printing, write one CSV file per table into this folder, and print the paths");
  }

  int run(const std::vector<std::string>& arguments) override {
    const std::vector<std::string> paths = core::expand_path_list(inputs_, std::cin);
    if (paths.empty()) return 0;
    const profile::FlightRecords records = profile::load_flight(paths, world_size_);
    for (const std::string& problem : records.problems) core::log_warning("profile.flight", problem);
    const std::vector<core::FlightFinding> findings = core::diagnose_flight(records.dumps, records.world_size);
    const auto tables = [&] { return profile::flight_tables(records, findings, operations_); };
    if (output_.json) {
      profile::Store store;
      print(profile::json_report(store, tables(), output_.report("flight", arguments)));
    } else if (!output_.csv.empty()) {
      print_paths(profile::write_csv(tables(), output_.csv));
    } else {
      print(profile::flight_text(records, findings, operations_));
    }
    if (!strict_ || records.problems.empty()) return 0;
    core::log_error("msprof", "--strict: a file was left out, see the warnings above");
    return core::exit_code(core::ErrorCode::kCorruptData);
  }

 private:
  std::vector<std::string> inputs_;
  int world_size_ = 0;
  int64_t operations_ = 0;
  bool strict_ = false;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Verb> flight_verb() { return std::make_unique<FlightVerb>(); }

}  // namespace ms::tools::msprof
