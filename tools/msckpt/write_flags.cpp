#include "tools/msckpt/write_flags.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "ckpt/inspect.h"
#include "ckpt/plan.h"
#include "ckpt/probe.h"
#include "core/error.h"
#include "core/io/bulk_writer.h"
#include "tools/guard.h"

namespace ms::tools::msckpt {

using core::cat;
using core::Error;
using core::ErrorCode;

void add_write_flags(CLI::App& verb, WriteFlags& flags, const char* save_dir_help) {
  verb.add_option("--save-dir", flags.save_dir, save_dir_help);
  verb.add_option("--mem", flags.mem_mib, "Memory limit of the process in MiB, at least 64 (default: 256)")
      ->check(CLI::Range(64, 1 << 20));
  add_threads(verb, flags.threads);
  verb.add_flag("--compress", flags.compress,
                "Compress a ms result with byte shuffle and zstd: 1.2 times smaller in fp32, 1.5 in bf16");
  verb.add_option(
          "--write-path", flags.write_path,
          "How files are written: io_uring, direct (bypasses the page cache), buffered, or auto, the fastest that "
          "the file system supports (default: auto)")
      ->check(CLI::IsMember({"auto", "io_uring", "direct", "buffered"}));
  verb.add_flag("--dry-run", flags.dry_run, "Check everything, print what would be written, write nothing");
}

void require_save_dir(const WriteFlags& flags) {
  if (flags.save_dir.empty() && !flags.dry_run) {
    throw Error(ErrorCode::kInvalidArgument, "--save-dir is missing: give the folder to write to");
  }
}

void refuse_to_write_into_the_source(const std::string& load_dir, const std::string& save_dir) {
  const auto same = [&](const std::filesystem::path& path) {
    std::error_code error;
    return !save_dir.empty() && std::filesystem::equivalent(path, save_dir, error) && !error;
  };
  const std::filesystem::path absolute = std::filesystem::absolute(std::filesystem::path(load_dir) / "").parent_path();
  if (same(absolute) || same(absolute.parent_path())) {
    throw Error(ErrorCode::kInvalidArgument, cat("--save-dir ", save_dir,
                                                 " holds what --load-dir reads: the new "
                                                 "layout would shadow it. Give another directory."));
  }
}

ckpt::NativeSinkOptions sink_options(const WriteFlags& flags, const ckpt::ReshardPlan& plan, const char* producer) {
  ckpt::NativeSinkOptions options;
  options.compress = flags.compress;
  options.write_path = core::parse_write_path(flags.write_path);
  options.root = flags.save_dir;
  options.rank_of_target = plan.targets.ranks;
  options.num_ranks = plan.layout.world_size();
  options.producer = producer;
  return options;
}

ckpt::ExecuteOptions execute_options(const WriteFlags& flags, const Process& process, const char* verb) {
  ckpt::ExecuteOptions options;
  options.mem_bytes = flags.mem_mib << 20;
  options.threads = process.threads(flags.threads);
  options.stopped = interrupted;
  options.progress = progress_line(verb);
  return options;
}

void print_dry_run(const WriteFlags& flags, bool as_json, const char* verb, ckpt::Source& source,
                   const ckpt::ReshardPlan& plan) {
  std::vector<int64_t> bytes_of_rank(static_cast<size_t>(plan.layout.world_size()));
  int64_t copies = 0, total = 0;
  ckpt::plan_copies(source.shards(), plan.targets.shards, [&](const ckpt::CopyRegion&) { ++copies; });
  for (size_t i = 0; i < plan.targets.shards.size(); ++i) {
    const int64_t bytes = plan.targets.shards.size_bytes(i);
    bytes_of_rank[static_cast<size_t>(plan.targets.ranks[i])] += bytes;
    total += bytes;
  }
  constexpr int64_t kProbeMiB = 48;  // memory per thread
  const int threads = static_cast<int>(std::clamp<int64_t>(flags.mem_mib / kProbeMiB, 1, flags.threads));
  const ckpt::ProbeReport rates =
      ckpt::probe(source, flags.save_dir, {threads, flags.compress, core::parse_write_path(flags.write_path)});
  const double seconds = rates.seconds_for(total);
  if (as_json) {
    print_json({{"schema", ckpt::kJsonSchema},
                {"verb", verb},
                {"dry_run", true},
                {"expected_seconds", seconds},
                {"read_bytes_per_s", rates.read_bytes_per_s},
                {"write_bytes_per_s", rates.write_bytes_per_s},
                {"layout", plan.info.layout},
                {"bytes", total},
                {"bytes_of_rank", bytes_of_rank},
                {"copies", copies},
                {"temporary_bytes", 0},
                {"memory_bytes", flags.mem_mib << 20},
                {"decisions", plan.decisions}});
    return;
  }
  std::string text = cat("would write ", ckpt::bytes_text(total), " of tensors in ", copies,
                         " copies, no temporary space, at most ", flags.mem_mib, " MiB of memory\n");
  for (size_t rank = 0; rank < bytes_of_rank.size(); ++rank) {
    if (bytes_of_rank[rank] > 0) text += cat("  rank ", rank, ": ", ckpt::bytes_text(bytes_of_rank[rank]), "\n");
  }
  for (const std::string& decision : plan.decisions) text += cat("  ", decision, "\n");
  const auto rate = [](double bytes_per_s) { return cat(ckpt::bytes_text(static_cast<int64_t>(bytes_per_s)), "/s"); };
  text += cat("about ", seconds < 10 ? std::round(10 * seconds) / 10 : std::round(seconds), " s: a probe of ",
              ckpt::bytes_text(rates.bytes_read), " was read at ", rate(rates.read_bytes_per_s));
  text += flags.save_dir.empty() ? " (give --save-dir to measure writing too)\n"
                                 : cat(" and written at ", rate(rates.write_bytes_per_s), "\n");
  print(text);
}

void print_result(const convert::ConvertReport& report) {
  print(report.dry_run ? cat("would write ", report.tensors, " tensors, ", ckpt::bytes_text(report.bytes), " as ",
                             convert::format_name(report.to), " to ", report.save_dir, "\n")
                       : report.path + "\n");
}

}  // namespace ms::tools::msckpt
