#include "tools/msckpt/reshard.h"

#include <memory>
#include <string>
#include <utility>

#include "ckpt/execute.h"
#include "ckpt/inspect.h"
#include "ckpt/native_sink.h"
#include "ckpt/reshard.h"
#include "convert/detect.h"
#include "core/error.h"
#include "core/log.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"
#include "tools/msckpt/named_result.h"
#include "tools/msckpt/reshard_flags.h"
#include "tools/msckpt/source_flags.h"
#include "tools/msckpt/write_flags.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

struct ReshardVerbFlags {
  std::string load_dir;
  bool json = false, resume = false;
  ReshardFlags reshard;
  WriteFlags write;
  convert::OpenOptions source;
  NamedResultFlags named;
};

int run_reshard(const ReshardVerbFlags& flags, const Process& process) {
  const std::string load_dir = single_path(process, flags.load_dir, "--load-dir");
  if (load_dir.empty()) return 0;
  std::unique_ptr<ckpt::Source> source;
  ckpt::ReshardPlan plan;
  std::string plan_hash;
  agree(process, [&] {
    require_save_dir(flags.write);
    source = convert::open_source(load_dir, flags.source);
    refuse_to_write_into_the_source(load_dir, flags.write.save_dir);
    if (!source->info().has_model && flags.resume) ckpt::require_model(source->info(), "reshard --resume");
    if (!source->info().has_model && process.team != nullptr) {
      ckpt::require_model(source->info(), "a reshard by several processes");
    }
    if (!source->info().has_model) return;
    refuse_named_result_flags(flags.named, load_dir);
    plan = ckpt::plan_reshard(*source, target_layout(flags.reshard.layout, *source), reshard_options(flags.reshard));
    plan_hash = ckpt::hash_of_plan(*source, plan, flags.write.compress);
    if (plan_hash.empty() && (flags.resume || process.team != nullptr)) {
      throw Error(ErrorCode::kUnsupported,
                  cat(load_dir, ": it has no logical hashes: omit --resume and run one process"));
    }
  });
  if (!source->info().has_model) {
    const convert::ConvertReport report =
        write_named_result(std::move(source), load_dir, convert::detect_format(load_dir).format, flags.named,
                           flags.reshard, flags.write, process, "reshard");
    nlohmann::json document = convert::to_json(report);
    document["verb"] = "reshard";
    flags.json ? print_json(document) : print_result(report);
    return 0;
  }
  if (flags.write.dry_run) {
    if (process.prints()) print_dry_run(flags.write, flags.json, "reshard", *source, plan);
    return 0;
  }
  for (const std::string& decision : plan.decisions) core::log_info("msckpt.reshard", decision);
  ckpt::NativeSinkOptions to = sink_options(flags.write, plan, "msckpt");
  to.expected_logical_xxh3 = ckpt::hashes_to_keep(*source);
  to.plan_hash = std::move(plan_hash);
  to.team = process.team;
  to.resume = flags.resume;
  const auto sink = ckpt::make_native_sink(std::move(to));
  const ckpt::ExecuteReport report =
      ckpt::execute(*source, *sink, plan.info, plan.targets.shards, execute_options(flags.write, process, "reshard"));
  if (!process.prints()) return 0;
  core::log_info(
      "msckpt.reshard",
      cat(ckpt::bytes_text(report.bytes), " in ", report.copies, " copies, ", report.seconds, " s (",
          ckpt::bytes_text(static_cast<int64_t>(static_cast<double>(report.bytes) / report.seconds)), "/s)"));
  if (flags.json) {
    print_json({{"schema", ckpt::kJsonSchema},
                {"verb", "reshard"},
                {"path", report.path.string()},
                {"bytes", report.bytes},
                {"copies", report.copies},
                {"seconds", report.seconds}});
  } else {
    print(report.path.string() + "\n");
  }
  return 0;
}

}  // namespace

Verb add_reshard(CLI::App& app) {
  const auto flags = std::make_shared<ReshardVerbFlags>();
  CLI::App* verb = add_command(app, "reshard", "convert a checkpoint to other parallel sizes, optimizer state included",
                               flags->json);
  add_load_dir(*verb, flags->load_dir);
  add_reshard_flags(*verb, flags->reshard);
  add_drop_optimizer(*verb, flags->reshard.drop_optimizer);
  add_write_flags(*verb, flags->write, "Root of the new checkpoint; its path is printed");
  add_source_flags(*verb, flags->source);
  add_named_result_flags(*verb, flags->named);
  verb->add_flag("--resume", flags->resume,
                 "Continue where the same command was stopped; if stopped again, keep finished files");
  return {verb, [flags](const Process& process) { return run_reshard(*flags, process); }, true};
}

}  // namespace ms::tools::msckpt
