#include "tools/msprof/links.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class LinksVerb final : public SectionVerb {
 public:
  LinksVerb()
      : SectionVerb("links", "bandwidth of each link and each kind of collective; slow links",
                    {&profile::sections::kCrossRank, &profile::sections::kLinks}) {}

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

std::unique_ptr<Verb> links_verb() { return std::make_unique<LinksVerb>(); }

}  // namespace ms::tools::msprof
