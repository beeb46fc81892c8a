#include "tools/msprof/record.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/comm/launcher.h"
#include "core/error.h"
#include "core/log.h"
#include "profile/record/launch.h"
#include "tools/msprof/analyze.h"

namespace ms::tools::msprof {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

int64_t traces_in(const std::filesystem::path& folder) {
  std::error_code absent;
  const std::filesystem::directory_iterator entries(folder, absent);
  return std::count_if(begin(entries), end(entries), [](const auto& e) { return e.path().extension() == ".mstrace"; });
}

class RecordVerb final : public Verb {
 public:
  const char* name() const override { return "record"; }
  const char* help() const override {
    return "run a program and record a trace: mstrain with its --profile flags, any other MPI program by its MPI calls";
  }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof record -o traces -- mpirun -n 4 ./solver input.txt");
    verb.add_option("command", command_, "The program and its arguments, after --")->required();
    verb.add_option("-o,--output", folder_, "Folder for the traces, without traces in it; default profile_dir");
    verb.add_option("--rank", rank_, "Record only these ranks: 0-3,8; default all");
    verb.add_option("--step", step_, "mstrain only: record these iterations: 10-12");
    verb.add_option("--level", level_,
                    "Detail: level0, level1 (adds a span per MPI call), or level2 (mstrain only); default level1, of "
                    "mstrain its own")
        ->check(CLI::IsMember({"level0", "level1", "level2"}));
    output_.add_json(verb);
  }

  // Returns the program's exit code, or that of analyze if the program succeeded.
  int run(const std::vector<std::string>& arguments) override {
    const std::filesystem::path folder = folder_.empty() ? "profile_dir" : folder_;
    if (traces_in(folder) > 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat(folder.string(), " already contains traces; give a new folder with -o"));
    }
    profile::RecordOptions options{folder, parse_list(rank_, "--rank"), 0, -1, level_, command_};
    if (const std::vector<int64_t> steps = parse_list(step_, "--step"); !steps.empty()) {
      options.first_step = steps.front();
      options.last_step = steps.back();
    }
    const std::filesystem::path library = core::library_of_ours("libmsuite_record.so");
    const profile::RecordedCommand command = profile::recorded_command(options, library);
    const bool preloads = command.words != command_ && std::none_of(command.words.begin(), command.words.end(),
                                                                    [](auto& w) { return w == "--profile"; });
    if ((preloads || !command.environment.empty()) && !std::filesystem::exists(library)) {
      throw Error(ErrorCode::kNotFound,
                  cat("record needs ", library.string(), ", which does not exist: install msprof with its lib folder"));
    }
    std::error_code error;
    const bool is_new = std::filesystem::create_directories(folder, error);
    if (error) {
      throw Error(core::ErrorCode::kIo,
                  cat("cannot create folder ", folder.string(), ": ", error.message(), "; give another one with -o"));
    }
    const int code = profile::run_recorded(command);
    if (code != 0) core::log_error("msprof", cat(command_.front(), " ended with exit code ", code));
    if (traces_in(folder) == 0) {
      if (is_new) std::filesystem::remove(folder, error);
      if (code != 0) return code;
      throw Error(ErrorCode::kNotFound,
                  cat(folder.string(),
                      " contains no trace: the program did not call MPI_Init, or --rank selects none of its ranks"));
    }
    InputFlags input;
    input.inputs = {folder.string()};
    const int analyzed = analyze(input, output_, arguments);
    return code != 0 ? code : analyzed;
  }

 private:
  std::vector<std::string> command_;
  std::string folder_, rank_, step_, level_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Verb> record_verb() { return std::make_unique<RecordVerb>(); }

}  // namespace ms::tools::msprof
