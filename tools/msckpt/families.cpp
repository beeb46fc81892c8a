#include "tools/msckpt/families.h"

#include <memory>
#include <string>

#include "ckpt/inspect.h"
#include "convert/family.h"
#include "convert/user_family.h"
#include "core/error.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using nlohmann::json;

struct FamiliesFlags {
  bool json = false;
  std::string explain;
};

int run_families(const FamiliesFlags& flags) {
  if (!flags.explain.empty()) {
    print(convert::explain_family(convert::find_family(flags.explain)).dump(2) + "\n");
    return 0;
  }
  json list = json::array();
  std::string table;
  for (const convert::Family* family : convert::families()) {
    list.push_back(
        {{"model_type", family->model_type}, {"architecture", family->architecture}, {"about", family->about}});
    const std::string name(family->model_type);
    table += cat(name, std::string(name.size() < 14 ? 14 - name.size() : 1, ' '), family->about, "\n");
  }
  if (flags.json) {
    print_json({{"schema", ckpt::kJsonSchema}, {"verb", "families"}, {"families", list}});
  } else {
    print(table);
  }
  return 0;
}

}  // namespace

Verb add_families(CLI::App& app) {
  const auto flags = std::make_shared<FamiliesFlags>();
  CLI::App* verb =
      add_command(app, "families", "list the Hugging Face model families that convert supports", flags->json);
  verb->add_option("--explain", flags->explain,
                   "Print this family as JSON for convert --name-map, as a template for other families");
  return {verb, [flags](const Process&) { return run_families(*flags); }};
}

}  // namespace ms::tools::msckpt
