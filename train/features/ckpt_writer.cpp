#include "train/features/ckpt_writer.h"

#include "core/io/bulk_writer.h"
#include "core/scheduling.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature ckpt_writer_feature() {
  return {
      .name = "ckpt-writer",
      .level = 0,
      .effect =
          "Writes checkpoints in a separate process, which commits the last snapshot even if the trainer is killed",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<CkptWriterConfig>("checkpoint", config.checkpoint); },
      .is_active =
          [](const TrainerConfig& c) { return !c.checkpoint.save.empty() && c.checkpoint.ckpt_writer == "process"; },
      .check =
          [](const TrainerConfig& c, int) {
            const CkptWriterConfig& writer = c.checkpoint;
            require_one_of("--ckpt-writer", writer.ckpt_writer, {"thread", "process"});
            within_flag("--ckpt-write-path", [&] { core::parse_write_path(writer.ckpt_write_path); });
            within_flag("--ckpt-writer-cpus", [&] { core::parse_cpu_list(writer.ckpt_writer_cpus); });
            require(writer.ckpt_writer_nice >= 0 && writer.ckpt_writer_nice <= 19, "--ckpt-writer-nice ",
                    writer.ckpt_writer_nice, ": 0 to 19");
            require(writer.ckpt_io_limit >= 0, "--ckpt-io-limit ", writer.ckpt_io_limit, ": MB/s, or 0 for no limit");
          },
  };
}

}  // namespace ms::train
