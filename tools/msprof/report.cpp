#include "tools/msprof/report.h"

#include "core/io/file.h"
#include "profile/report/html_report.h"
#include "profile/sections.h"
#include "tools/guard.h"
#include "tools/msprof/input_flags.h"

namespace ms::tools::msprof {
namespace {

class ReportVerb final : public Verb {
 public:
  const char* name() const override { return "report"; }
  const char* help() const override { return "write one HTML file with all results, to open from disk"; }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof report traces -o report.html");
    input_.add(verb);
    verb.add_option("-o,--output", output_, "report.html")->required();
    verb.add_option("--step", step_, "Only these steps: 10-12; default all");
  }

  int run(const std::vector<std::string>&) override {
    const std::vector<std::string> paths = input_.paths();
    if (paths.empty()) return 0;
    const profile::Store store = input_.load(paths);
    profile::AnalysisOptions options;
    options.steps = parse_list(step_, "--step");
    options.threads = input_.threads;
    const profile::Results results = profile::analyze(store, profile::sections::every(), options);
    core::write_text_atomically(output_, profile::html_report(store, results, input_.inputs));
    print(output_ + "\n");
    return input_.exit_code(store);
  }

 private:
  InputFlags input_;
  std::string output_, step_;
};

}  // namespace

std::unique_ptr<Verb> report_verb() { return std::make_unique<ReportVerb>(); }

}  // namespace ms::tools::msprof
