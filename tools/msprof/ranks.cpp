#include "tools/msprof/ranks.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class RanksVerb final : public SectionVerb {
 public:
  RanksVerb()
      : SectionVerb("ranks", "waiting at collectives: who arrives last, who waits, which rank is slow and why",
                    {&profile::sections::kCrossRank, &profile::sections::kRanks}) {}

 private:
  void add_flags(CLI::App& verb) override {
    output_.add_top(verb);
    align_.add(verb);
  }
  profile::AnalysisOptions options() const override {
    profile::AnalysisOptions options = SectionVerb::options();
    options.align = align_.mode();
    return options;
  }

  AlignFlag align_;
};

}  // namespace

std::unique_ptr<Verb> ranks_verb() { return std::make_unique<RanksVerb>(); }

}  // namespace ms::tools::msprof
