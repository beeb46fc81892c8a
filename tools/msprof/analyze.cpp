#include "tools/msprof/analyze.h"

#include "tools/msprof/hta.h"
#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class AnalyzeVerb final : public SectionVerb {
 public:
  AnalyzeVerb()
      : SectionVerb("analyze", "findings: where time is lost, largest first; --json prints every section",
                    profile::sections::every()) {}
  AnalyzeVerb(const InputFlags& input, const OutputFlags& output) : AnalyzeVerb() {
    input_ = input;
    output_ = output;
  }

  int run(const std::vector<std::string>& arguments) override {
    if (compat_.empty()) return SectionVerb::run(arguments);
    const bool unsupported = !stacks_.collapsed.empty() || !counters_.counters.empty() ||
                             align_.align != AlignFlag().align || limit_.queue_limit != QueueLimitFlag().queue_limit;
    return run_hta({name(), /*page=*/true, unsupported, delay_.consecutive_kernel_delay_ns}, input_, output_,
                   arguments);
  }

 private:
  void add_flags(CLI::App& verb) override {
    output_.add_top(verb);
    align_.add(verb);
    stacks_.add(verb);
    counters_.add(verb);
    delay_.add(verb);
    limit_.add(verb);
    add_compat_flag(verb, compat_);
  }
  profile::AnalysisOptions options() const override {
    profile::AnalysisOptions options = SectionVerb::options();
    options.align = align_.mode();
    options.consecutive_kernel_delay = delay_.consecutive_kernel_delay_ns;
    options.queue_limit = limit_.queue_limit;
    return options;
  }
  std::string text(const profile::Store& store, const profile::Results& results) const override {
    return profile::analyze_text(store, results, input_.inputs);
  }
  void write_files(profile::Store& store, const profile::Results& results) const override {
    stacks_.write(store, results);
    counters_.write(store, results);
  }

  AlignFlag align_;
  StacksFlag stacks_;
  CountersFlag counters_;
  KernelDelayFlag delay_;
  QueueLimitFlag limit_;
  std::string compat_;
};

}  // namespace

std::unique_ptr<Verb> analyze_verb() { return std::make_unique<AnalyzeVerb>(); }

int analyze(const InputFlags& input, const OutputFlags& output, const std::vector<std::string>& arguments) {
  return AnalyzeVerb(input, output).run(arguments);
}

}  // namespace ms::tools::msprof
