#include "train/loop/generate.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/rng.h"
#include "train/parallel/p2p.h"

namespace ms::train {
namespace {

int32_t choose(const std::vector<float>& logits, double temperature, double uniform) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return static_cast<int32_t>(best - logits.begin());
  double total = 0;
  std::vector<double> weights;
  for (float logit : logits)
    total += weights.emplace_back(std::exp((static_cast<double>(logit) - *best) / temperature));
  double left = uniform * total;
  for (size_t id = 0; id < weights.size(); ++id) {
    left -= weights[id];
    if (left < 0) return static_cast<int32_t>(id);
  }
  return static_cast<int32_t>(best - logits.begin());
}

// Logits behind a row, on the rank that has it of those that share the text; given to the others.
std::vector<float> logits_of_position(RankState& state, GptStage& stage, const Microbatch& microbatch,
                                      const core::TensorView& hidden, int64_t position) {
  int64_t own_row = -1;  // of that position
  int owner = 0;
  for (int rank = 0; rank < state.groups.grid.cp; ++rank) {
    const int64_t length = microbatch.seq * state.groups.grid.cp;
    sequence_share(state.config.parallel, length, rank)
        .for_each_run(0, microbatch.seq, [&](int64_t row, int64_t first, int64_t count) {
          if (position < first || position >= first + count) return;
          owner = rank;
          own_row = row + position - first;
        });
  }
  std::vector<float> logits(static_cast<size_t>(state.config.model.vocab_size));
  if (owner == state.groups.at.cp) logits = stage.loss_head()->last_logits(hidden, own_row);
  if (state.groups.cp) {
    state.groups.cp->bcast(core::TensorView(logits.data(), core::DType::kFp32, {static_cast<int64_t>(logits.size())}),
                           owner);
  }
  return logits;
}

// Logits behind the last token of `ids`, on the stage of the loss; empty elsewhere.
std::vector<float> next_logits(RankState& state, GptStage& stage, const std::vector<int32_t>& ids) {
  const auto used = static_cast<int64_t>(ids.size());
  const int64_t multiple = sequence_multiple(state.config.parallel);
  Microbatch microbatch;
  microbatch.batch = 1;
  microbatch.seq = (used + multiple - 1) / multiple * multiple;  // what is behind a position does not change its logits
  microbatch.tokens = ids;
  microbatch.tokens.resize(static_cast<size_t>(microbatch.seq), ids.back());
  take_rows(sequence_share(state.config.parallel, microbatch.seq, state.groups.at.cp), microbatch);
  stage.set_text_length(used);
  P2PCommunicator links(state);
  std::vector<float> logits;
  core::Tensor hidden;  // of the chunk before, if it is on this stage
  for (int chunk = 0; chunk < stage.chunks(); ++chunk) {
    const layout::Place here{state.groups.at.pp, chunk};
    const auto before = stage.placement().before(here), behind = stage.placement().behind(here);
    if (before && before->stage != here.stage) {
      hidden = links.post_forward(stage.hidden_shape(1, microbatch.seq), before->stage).take();
    }
    hidden = stage.forward_hidden(chunk, microbatch, std::move(hidden));
    if (!behind) {
      logits = logits_of_position(state, stage, microbatch, hidden, used - 1);
    } else if (behind->stage != here.stage) {
      links.send_forward(std::move(hidden), behind->stage);
    }
  }
  links.finish();
  return logits;
}

}  // namespace

std::string generate(RankState& state, GptStage& stage, Tokenizer& tokenizer, const std::string& prompt, int64_t count,
                     double temperature, uint64_t seed, const std::function<bool()>& goes_on) {
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  if (ids.empty()) throw core::Error(core::ErrorCode::kInvalidArgument, "--generate: the prompt has no token");
  const core::Rng rng(seed, "generate");
  // What is cut over the ranks is a multiple of them, and must not pass the last position either.
  const int64_t multiple = sequence_multiple(state.config.parallel);
  const auto limit = static_cast<size_t>(state.config.model.max_position_embeddings / multiple * multiple);
  for (int64_t i = 0; i < count; ++i) {
    const size_t begin = ids.size() > limit ? ids.size() - limit : 0;
    std::vector<float> logits =
        next_logits(state, stage, std::vector<int32_t>(ids.begin() + static_cast<int64_t>(begin), ids.end()));
    // The model may have more ids than the tokenizer (rows that only pad its vocabulary): they have no text.
    if (!logits.empty() && static_cast<int64_t>(logits.size()) > tokenizer.vocab_size()) {
      logits.resize(static_cast<size_t>(tokenizer.vocab_size()));
    }
    int32_t id = logits.empty() ? 0 : choose(logits, temperature, rng.uniform(static_cast<uint64_t>(i)));
    const core::TensorView view(&id, core::DType::kInt32, {1});
    state.groups.pp.bcast(view, layout::stage_of_loss(state.layout()));
    if (tokenizer.eod() == id) break;
    ids.push_back(id);
    if (!goes_on()) break;
  }
  return tokenizer.decode(ids);
}

}  // namespace ms::train
