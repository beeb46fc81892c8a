#include "tools/msprof/convert.h"

#include "tools/msprof/export.h"

namespace ms::tools::msprof {
namespace {

class ConvertVerb final : public Verb {
 public:
  const char* name() const override { return "convert"; }
  const char* help() const override {
    return "write traces as Chrome JSON (Kineto's form, for TensorBoard and HTA), as Perfetto traces, or as native "
           "traces";
  }
  void add(CLI::App& verb) override {
    verb.footer("Example: msprof convert traces --merge -o all.perfetto-trace");
    flags_.add(verb);
  }
  int run(const std::vector<std::string>&) override { return flags_.run(); }

 private:
  ExportFlags flags_;
};

}  // namespace

std::unique_ptr<Verb> convert_verb() { return std::make_unique<ConvertVerb>(); }

}  // namespace ms::tools::msprof
