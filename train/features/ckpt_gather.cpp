#include "train/features/ckpt_gather.h"

#include "ckpt/writer.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr int64_t kMaxSliceElements = int64_t{1} << 30;  // 4 GiB per message

}  // namespace

Feature ckpt_gather_feature() {
  return {
      .name = "ckpt-gather",
      .level = 2,
      .effect =
          "Lets data-parallel rank 0 write its group's file, receiving the others' optimizer state in slices: fewer "
          "writers",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<CkptGatherConfig>("checkpoint", config.checkpoint);
            fields.alias("disable-gloo-group", "ckpt_gather", "true");
            fields.alias("hccl-slice-size", "ckpt_slice_size");
          },
      .is_active = [](const TrainerConfig& c) { return !c.checkpoint.save.empty() && c.checkpoint.ckpt_gather; },
      .rules = {excludes(
          "--ckpt-gather", [](const TrainerConfig& c) { return c.checkpoint.ckpt_gather; }, "--ckpt-writer process",
          [](const TrainerConfig& c) { return c.checkpoint.ckpt_writer == "process"; },
          ", which has no way to other ranks")},
      .check =
          [](const TrainerConfig& c, int) {
            ckpt::parse_gather_progress(c.checkpoint.ckpt_gather_progress);
            require(c.checkpoint.ckpt_slice_size > 0 && c.checkpoint.ckpt_slice_size <= kMaxSliceElements,
                    "--ckpt-slice-size ", c.checkpoint.ckpt_slice_size, ": 1 to ", kMaxSliceElements, " elements");
          },
  };
}

}  // namespace ms::train
