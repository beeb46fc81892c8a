#include "tools/msprof/info.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class InfoVerb final : public SectionVerb {
 public:
  InfoVerb()
      : SectionVerb("info", "files, ranks, steps, categories, clocks, and import issues",
                    {&profile::sections::kFacts}) {}

 private:
  void add_flags(CLI::App&) override { input_.log_all_issues = true; }
  std::string text(const profile::Store& store, const profile::Results& results) const override {
    return profile::info_text(store, results);
  }
};

}  // namespace

std::unique_ptr<Verb> info_verb() { return std::make_unique<InfoVerb>(); }

}  // namespace ms::tools::msprof
