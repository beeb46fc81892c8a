// The flags of verbs that write a checkpoint (memory, threads, compression, write path), and the output of a dry run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "ckpt/execute.h"
#include "ckpt/native_sink.h"
#include "ckpt/reshard.h"
#include "convert/convert.h"
#include "tools/msckpt/common.h"

namespace ms::tools::msckpt {

struct WriteFlags {
  std::string save_dir;
  int64_t mem_mib = 256;
  int threads = default_threads();
  bool compress = false, dry_run = false;
  std::string write_path = "auto";
};

void add_write_flags(CLI::App& verb, WriteFlags& flags, const char* save_dir_help);

// Throws kInvalidArgument if --save-dir is missing and this is not a dry run.
void require_save_dir(const WriteFlags& flags);
// Throws kInvalidArgument if a result in save_dir would be read instead of what load_dir names.
void refuse_to_write_into_the_source(const std::string& load_dir, const std::string& save_dir);

ckpt::NativeSinkOptions sink_options(const WriteFlags& flags, const ckpt::ReshardPlan& plan, const char* producer);
ckpt::ExecuteOptions execute_options(const WriteFlags& flags, const Process& process, const char* verb);

// Prints what the plan would write, and an estimate of the time from a probe of the disks.
void print_dry_run(const WriteFlags& flags, bool as_json, const char* verb, ckpt::Source& source,
                   const ckpt::ReshardPlan& plan);

// Prints the path that a conversion made. A dry run prints no path, because the next command of a pipeline would read
// it.
void print_result(const convert::ConvertReport& report);

}  // namespace ms::tools::msckpt
