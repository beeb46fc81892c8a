#include "core/layout/formulas/workspaces.h"

#include <algorithm>

#include "core/layout/formulas/rounds.h"
#include "core/layout/placement.h"
#include "kernels/attention.h"

namespace ms::layout {
namespace {

constexpr int64_t kFp32 = sizeof(float);

// Of a layer that attends by an algorithm.
int64_t workspace_bytes(const TrainingStep& step, ContextAlgorithm algorithm) {
  const core::TransformerConfig& model = step.model;
  const ContextParts parts = step.context_parts_of(algorithm);
  const int64_t rows = step.rows() * parts.ulysses;  // positions of a rank after an exchange of heads
  const bool sees_all = algorithm == ContextAlgorithm::kKvAllgather;
  const kernels::AttentionShape shape{.queries = rows,
                                      .keys = sees_all ? step.seq_length : rows,
                                      .d = model.key_head_dim(),
                                      .value_d = model.value_head_dim()};
  const int64_t ranks = int64_t{step.layout.tensor_model_parallel_size} * parts.ulysses;
  const int64_t heads = step.micro_batch_size * std::max<int64_t>(1, model.num_attention_heads / ranks);
  const int64_t groups = step.micro_batch_size * std::max<int64_t>(1, model.query_groups() / ranks);
  return kFp32 * std::max(std::min(step.threads, heads) * kernels::attention_workspace(shape),
                          std::min(step.threads, groups) * kernels::attention_backward_workspace(shape));
}

}  // namespace

int64_t rotary_table_bytes(const TrainingStep& step) {
  if (!step.model.has_rotary_embedding()) return 0;
  const int64_t tables = step.model.rotary_base_local > 0 ? 2 : 1;
  return tables * step.rotary_positions * step.model.rotary_dim() * kFp32;  // a cosine and a sine of each pair
}

int64_t attention_workspace_bytes(const TrainingStep& step, int stage) {
  int64_t most = 0;
  for (const TrainingStep& fullest : fullest_steps(step))
    most = std::max(most, attention_workspace_bytes(fullest, stage));
  const Placement placement = placement_of(step.model, step.layout);
  for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
    const auto [first, count] = placement.layers({stage, chunk});
    for (int64_t layer = first; layer < first + count; ++layer)
      most = std::max(most, workspace_bytes(step, step.context_algorithm_of(layer)));
  }
  return most;
}

}  // namespace ms::layout
