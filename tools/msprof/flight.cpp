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
    return "which rank makes a run hang: flight records of mstrain or PyTorch, of each rank";
  }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof flight records");
    verb.add_option("inputs", inputs_,
                    "Folders or files: rank_*.flight of mstrain --flight-recorder-dump-path, dumps of PyTorch's Flight "
                    "Recorder (pickle or JSON) with the rank at the end of the name; -: a list of them on stdin")
        ->required();
    verb.add_option("--world-size", world_size_,
                    "Ranks of the run, to see which have left no record; default: as the records say")
        ->check(CLI::Range(1, 1 << 24));
    verb.add_option("--operations", operations_, "Also list this many last operations of each rank; default 0")
        ->check(CLI::NonNegativeNumber);
    verb.add_flag("--strict", strict_, "Exit 3 if a file could not be read");
    output_.add_json(verb);
    verb.add_option("--csv", output_.csv, "Write one CSV file per table into this folder, and print the paths");
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
