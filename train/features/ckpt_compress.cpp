#include "train/features/ckpt_compress.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature ckpt_compress_feature() {
  return {
      .name = "ckpt-compress",
      .level = 0,
      .effect = "Compresses checkpoints as they are written: 1.2 times smaller in fp32, 1.5 times in bf16",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<CkptCompressConfig>("checkpoint", config.checkpoint); },
      .is_active = [](const TrainerConfig& c) { return !c.checkpoint.save.empty() && c.checkpoint.ckpt_compress; },
      .check =
          [](const TrainerConfig& c, int) {
            const int threads = c.checkpoint.ckpt_compress_threads;
            require(threads >= 1 && threads <= 256, "--ckpt-compress-threads ", threads, ": 1 to 256");
          },
  };
}

}  // namespace ms::train
