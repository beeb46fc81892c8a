#include "tools/msprof/experts.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class ExpertsVerb final : public SectionVerb {
 public:
  ExpertsVerb()
      : SectionVerb("experts",
                    "load of experts by layer, rank and step, hot and dead ones, and the waiting that imbalance costs; "
                    "of traces, of Megatron's routing traces, and of metrics",
                    {&profile::sections::kExperts}) {}

 private:
  void add_flags(CLI::App& verb) override {
    output_.add_top(verb);
    align_.add(verb);
    verb.add_option("--num-experts", experts_.num_experts,
                    "Experts of a layer, for routing traces (--moe-routing-trace-path), which do not say it; default: "
                    "up to the last one that was chosen")
        ->check(CLI::Range(int64_t{1}, core::trace::kMaxCountedExperts));
    verb.add_option(
            "--expert-model-parallel-size", experts_.expert_parallel,
            "For routing traces and metrics: ranks that the experts of a layer are distributed over, to show "
            "their load, too, in blocks of experts as they are without --enable-expert-placement; default: not shown")
        ->check(CLI::Range(int64_t{1}, core::trace::kMaxCountedExperts));
  }
  profile::AnalysisOptions options() const override {
    profile::AnalysisOptions options = SectionVerb::options();
    options.align = align_.mode();
    options.experts = experts_;
    return options;
  }

  AlignFlag align_;
  profile::ExpertOptions experts_;
};

}  // namespace

std::unique_ptr<Verb> experts_verb() { return std::make_unique<ExpertsVerb>(); }

}  // namespace ms::tools::msprof
