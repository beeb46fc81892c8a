#include "tools/msprof/steps.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class StepsVerb final : public SectionVerb {
 public:
  StepsVerb()
      : SectionVerb("steps", "step table: computing, communication, free, stage, bubble, preparing",
                    {&profile::sections::kSteps}) {}

 private:
  void add_flags(CLI::App& verb) override {
    verb.add_option("--style", style_, "cluster (default, Ascend's columns) or tensorboard (time by role)")
        ->check(CLI::IsMember({"cluster", "tensorboard"}));
  }
  profile::Sections sections() const override {
    if (style_ == "tensorboard") return {&profile::sections::kTensorboardSteps};
    return SectionVerb::sections();
  }
  std::string text(const profile::Store& store, const profile::Results& results) const override {
    return style_ == "tensorboard" ? SectionVerb::text(store, results) : profile::steps_text(store, results);
  }

  std::string style_ = "cluster";
};

}  // namespace

std::unique_ptr<Verb> steps_verb() { return std::make_unique<StepsVerb>(); }

}  // namespace ms::tools::msprof
