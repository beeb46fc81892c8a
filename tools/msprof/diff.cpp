#include "tools/msprof/diff.h"

#include <algorithm>

#include "core/error.h"
#include "profile/analysis/diff.h"
#include "profile/report/job_tables.h"
#include "tools/msprof/input_flags.h"
#include "tools/msprof/output_flags.h"

namespace ms::tools::msprof {
namespace {

class DiffVerb final : public Verb {
 public:
  const char* name() const override { return "diff"; }
  const char* help() const override { return "compare two runs: what was added, removed, or takes longer"; }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof diff before after --short-names");
    input_.add(verb);
    output_.add(verb);
    output_.add_top(verb);
    verb.add_flag("--short-names", short_names_, "Compare names without template arguments and parameter lists");
  }

  int run(const std::vector<std::string>& arguments) override {
    const std::vector<std::string> paths = input_.paths();
    if (paths.size() != 2) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        core::cat("diff compares two inputs, BASE and TEST; ", paths.size(), " were given"));
    }
    const profile::Store base = input_.load({paths[0]}), test = input_.load({paths[1]});
    const profile::Diff diff = profile::diff_runs(base, test, parse_list(output_.step, "--step"), short_names_);
    print_tables(
        output_, [&] { return profile::json_report(base, diff, output_.report("diff", arguments)); },
        [&](int64_t top) { return profile::diff_tables(diff, top); });
    return std::max(input_.exit_code(base), input_.exit_code(test));
  }

 private:
  InputFlags input_;
  OutputFlags output_;
  bool short_names_ = false;
};

}  // namespace

std::unique_ptr<Verb> diff_verb() { return std::make_unique<DiffVerb>(); }

}  // namespace ms::tools::msprof
