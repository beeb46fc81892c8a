#include "tools/msprof/pop.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class PopVerb final : public SectionVerb {
 public:
  PopVerb()
      : SectionVerb("pop", "POP efficiencies: load balance, serialization, transfer", {&profile::sections::kPop}) {}

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

std::unique_ptr<Verb> pop_verb() { return std::make_unique<PopVerb>(); }

}  // namespace ms::tools::msprof
