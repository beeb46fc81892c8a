#include "train/loop/random_batch.h"

#include <numeric>

#include "core/error.h"
#include "core/rng.h"

namespace ms::train {

std::vector<Microbatch> random_batch(const TrainerConfig& config, int64_t micro_batch_size, int64_t num_microbatches,
                                     int rank) {
  const int64_t seq = config.training.seq_length;
  const core::Rng rng(static_cast<uint64_t>(config.rng.seed), core::cat("benchmark tokens ", rank));
  uint64_t draw = 0;
  std::vector<Microbatch> microbatches(static_cast<size_t>(num_microbatches));
  for (Microbatch& m : microbatches) {
    m.batch = micro_batch_size, m.seq = seq;
    for (int64_t i = 0; i < micro_batch_size * seq; ++i) {
      for (auto* ids : {&m.tokens, &m.labels}) {
        ids->push_back(static_cast<int32_t>(rng.below(draw++, static_cast<uint64_t>(config.model.vocab_size))));
      }
    }
    m.loss_mask.assign(m.tokens.size(), 1.0F);
    m.samples.resize(static_cast<size_t>(micro_batch_size));
    std::iota(m.samples.begin(), m.samples.end(), int64_t{0});
  }
  return microbatches;
}

}  // namespace ms::train
