#include "tools/msprof/slice.h"

#include "tools/msprof/export.h"

namespace ms::tools::msprof {
namespace {

class SliceVerb final : public Verb {
 public:
  const char* name() const override { return "slice"; }
  const char* help() const override { return "write chosen steps, ranks or times as a smaller trace"; }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof slice traces --step 12 --merge -o step12.json.gz");
    flags_.add(verb);
  }
  int run(const std::vector<std::string>&) override { return flags_.run(); }

 private:
  ExportFlags flags_;
};

}  // namespace

std::unique_ptr<Verb> slice_verb() { return std::make_unique<SliceVerb>(); }

}  // namespace ms::tools::msprof
