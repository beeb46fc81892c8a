#include "tools/msprof/ops.h"

#include "tools/msprof/section_verb.h"

namespace ms::tools::msprof {
namespace {

class OpsVerb final : public SectionVerb {
 public:
  OpsVerb()
      : SectionVerb("ops", "host operators: their own time, and the device time that they launched",
                    {&profile::sections::kOperators}) {}

 private:
  void add_flags(CLI::App& verb) override {
    output_.add_top(verb);
    stacks_.add(verb);
  }
  void write_files(profile::Store& store, const profile::Results& results) const override {
    stacks_.write(store, results);
  }

  StacksFlag stacks_;
};

}  // namespace

std::unique_ptr<Verb> ops_verb() { return std::make_unique<OpsVerb>(); }

}  // namespace ms::tools::msprof
