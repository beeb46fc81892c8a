#include "tools/msprof/pipeline.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class PipelineVerb final : public SectionVerb {
 public:
  PipelineVerb()
      : SectionVerb("pipeline", "pipeline stages, their bubbles, and the excess over the ideal bubble",
                    {&profile::sections::kPipeline}) {}

 private:
  void add_flags(CLI::App& verb) override { align_.add(verb); }
  profile::AnalysisOptions options() const override {
    profile::AnalysisOptions options = SectionVerb::options();
    options.align = align_.mode();
    return options;
  }

  AlignFlag align_;
};

}  // namespace

std::unique_ptr<Verb> pipeline_verb() { return std::make_unique<PipelineVerb>(); }

}  // namespace ms::tools::msprof
