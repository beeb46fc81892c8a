#include "tools/msckpt/gc.h"

#include <memory>
#include <string>
#include <vector>

#include "ckpt/gc.h"
#include "ckpt/inspect.h"
#include "core/error.h"
#include "core/log.h"
#include "tools/command_line.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using nlohmann::json;

struct GcFlags {
  std::vector<std::string> paths;
  bool json = false, dry_run = false;
  ckpt::Retention retention;
};

int run_gc(const GcFlags& flags) {
  for (const std::string& root : input_paths(flags.paths)) {
    const ckpt::GcReport report = ckpt::collect_garbage(root, {flags.retention, flags.dry_run});
    for (const std::string& note : report.notes) core::log_warning("msckpt.gc", note);
    json items = json::array();
    std::string text;
    int64_t freed = 0;
    for (const ckpt::GcItem& item : report.items) {
      items.push_back({{"path", item.path.string()},
                       {"reason", item.reason},
                       {"bytes", item.bytes},
                       {"bytes_freed", item.bytes_freed}});
      text += item.path.string() + "\n";
      freed += item.bytes_freed;
    }
    core::log_info("msckpt.gc", cat(flags.dry_run ? "would remove " : "removed ", report.items.size(),
                                    report.items.size() == 1 ? " directory of " : " directories of ", root, ", ",
                                    ckpt::bytes_text(freed), report.native ? "; the newest complete one is " : "",
                                    !report.native          ? ""
                                    : report.newest.empty() ? "absent"
                                                            : report.newest.filename().string()));
    if (flags.json) {
      print_json({{"schema", ckpt::kJsonSchema},
                  {"verb", "gc"},
                  {"path", root},
                  {"dry_run", flags.dry_run},
                  {"newest", report.newest.string()},
                  {"bytes_freed", freed},
                  {"removed", std::move(items)},
                  {"notes", report.notes}});
    } else {
      print(text);
    }
  }
  return 0;
}

}  // namespace

Verb add_gc(CLI::App& app) {
  const auto flags = std::make_shared<GcFlags>();
  CLI::App* verb = add_command(
      app, "gc",
      "remove leftovers of dead writers and conversions, and generations that the retention flags do not keep",
      flags->json);
  add_paths(*verb, flags->paths, "Checkpoint roots, or results of convert in any format");
  verb->add_option("--keep-last", flags->retention.keep_last, "Number of newest generations to keep (default: all)")
      ->check(positive_number());
  verb->add_option("--retain-interval", flags->retention.retain_interval,
                   "Keep the newest generation, and iterations that are multiples of this (default: all)")
      ->check(positive_number());
  verb->add_flag("--dry-run", flags->dry_run, "Print what would be removed, remove nothing");
  return {verb, [flags](const Process&) { return run_gc(*flags); }};
}

}  // namespace ms::tools::msckpt
