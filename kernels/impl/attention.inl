// Body of attention.h.
//
// Tiles of kQueryBlock x kKeyBlock scores. Both sizes are multiples of the register tile in rows and in columns (scores
// are also a left operand, plain and transposed), so no product has an edge. Operands are copied to fp32 with padding,
// once per head for K and V, once per block for Q and dO. Right operands are packed in strips of kTileColumns,
// [strip][step][column]. Register tiles without a visible key are skipped, so large blocks waste nothing at the
// diagonal. Shapes are resolved (AttentionShape::resolved).

#include "kernels/impl/dropout.inl"
#include "kernels/impl/micro_tile.inl"
#include "kernels/impl/pack.inl"

static_assert(kQueryBlock % kTileRows == 0 && kKeyBlock % kTileRows == 0 && kKeyBlock % kTileColumns == 0);
static_assert(kHeadPadding % kTileColumns == 0);

struct Range {
  int64_t begin, end;
};

// Scores of queries [0, rows) and keys [0, keys) of two blocks; query i sees keys from i + first to i + last, and keys
// before prefix, but none before begin.
struct ScoreBlock {
  int64_t rows, keys, first, last, prefix, begin;
};

inline int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

// Keys [begin, end) as queries see them: a run, or all.
struct SeenRun {
  Visible visible;
  int64_t begin, end;
};

// Queries [begin, end) and the runs of keys that they see. Without lists one span has all queries and one run all keys.
struct Span {
  int64_t begin, end, first_run, end_run;
};
inline int64_t num_spans(const AttentionParams& params) { return params.runs.any() ? params.runs.num_spans : 1; }
inline Span span_of(const AttentionParams& params, int64_t queries, int64_t span) {
  if (!params.runs.any()) return {0, queries, 0, 1};
  const QuerySpan& of = params.runs.spans[span];
  return {of.first, int64_t{of.first} + of.count, span == 0 ? 0 : params.runs.spans[span - 1].runs_end, of.runs_end};
}
inline SeenRun run_of(const AttentionParams& params, int64_t keys, int64_t span, int64_t run) {
  if (!params.runs.any()) return {params.visible, 0, keys};
  const QuerySpan& of = params.runs.spans[span];
  const KeyRun& seen = params.runs.runs[run];
  const int64_t distance = (int64_t{of.position} - of.first) - (int64_t{seen.position} - seen.first);
  return {{.last = params.runs.is_causal ? distance : Visible::kAll}, seen.first, int64_t{seen.first} + seen.count};
}
// params with the positions of a span and a run of `listed`.
inline AttentionParams at_run(AttentionParams params, const AttentionParams& listed, int64_t span, int64_t run) {
  if (!listed.runs.any()) return params;
  const QuerySpan& of = listed.runs.spans[span];
  const KeyRun& seen = listed.runs.runs[run];
  params.first_row = int64_t{of.position} - of.first;
  params.first_column = int64_t{seen.position} - seen.first;
  params.bias.distance = params.first_row - params.first_column;
  return params;
}

// Up to so many keys of them that start at `key`, and queries that start at `query`.
MS_INLINE ScoreBlock block_of(const SeenRun& seen, int64_t rows, int64_t most, int64_t query, int64_t key) {
  const Visible& visible = seen.visible;
  const int64_t keys = seen.end - key < most ? seen.end - key : most;
  return {rows,
          keys,
          visible.first + query - key,
          visible.last + query - key,
          visible.prefix - key,
          clamp(seen.begin - key, 0, keys)};
}

// The keys that any of the queries [first, last] sees; an empty range starts where the next key would be.
MS_INLINE Range keys_of(const ScoreBlock& block, int64_t first, int64_t last) {
  const int64_t after = last + block.last + 1;
  const int64_t end = clamp(after > block.prefix ? after : block.prefix, block.begin, block.keys);
  return {clamp(first + block.first, block.begin, end), end};
}

// The queries that see any of the keys [first, last].
MS_INLINE Range queries_of(const ScoreBlock& block, int64_t first, int64_t last) {
  if (last < block.begin) return {0, 0};
  const int64_t begin = first < block.prefix ? 0 : clamp(first - block.last, 0, block.rows);
  return {begin, clamp(last - block.first + 1, begin, block.rows)};
}

MS_INLINE Range keys_of_tile(const ScoreBlock& block, int64_t row) {
  const int64_t last = row + kTileRows < block.rows ? row + kTileRows : block.rows;
  return keys_of(block, row, last - 1);
}

// c [kQueryBlock, kKeyBlock] = a b^T for tiles with a visible score. a: rows of a_row elements; b: strips of keys.
MS_INLINE void score_product(const ScoreBlock& block, int64_t d, const float* a, int64_t a_row, const float* b,
                             float* c) {
  for (int64_t j = 0; j < block.keys; j += kTileColumns, b += d * kTileColumns) {
    for (int64_t i = 0; i < block.rows; i += kTileRows) {
      const Range keys = keys_of_tile(block, i);
      if (j >= keys.end || j + kTileColumns <= keys.begin) continue;
      micro_tile_rows<kTileRows>(d, a + i * a_row, a_row, 1, b, kTileColumns, false, c + i * kKeyBlock + j, kKeyBlock);
    }
  }
}

// c [rows, padded] += scores * b over the visible keys. b: strips of padded columns, b_strip apart.
MS_INLINE void add_weighted_keys(const ScoreBlock& block, const float* scores, int64_t padded, const float* b,
                                 int64_t b_strip, float* c) {
  for (int64_t j = 0; j < padded; j += kTileColumns, b += b_strip) {
    for (int64_t i = 0; i < block.rows; i += kTileRows) {
      const Range keys = keys_of_tile(block, i);
      if (keys.begin == keys.end) continue;
      micro_tile_rows<kTileRows>(keys.end - keys.begin, scores + i * kKeyBlock + keys.begin, kKeyBlock, 1,
                                 b + keys.begin * kTileColumns, kTileColumns, true, c + i * padded + j, padded);
    }
  }
}

// c [keys, padded] += scores^T * b over the queries that see them. b: strips of padded columns, b_strip apart.
MS_INLINE void add_weighted_queries(const ScoreBlock& block, const float* scores, int64_t padded, const float* b,
                                    int64_t b_strip, float* c) {
  for (int64_t j = 0; j < padded; j += kTileColumns, b += b_strip) {
    for (int64_t i = 0; i < block.keys; i += kTileRows) {
      const Range queries = queries_of(block, i, i + kTileRows - 1);
      if (queries.begin == queries.end) continue;
      micro_tile_rows<kTileRows>(queries.end - queries.begin, scores + queries.begin * kKeyBlock + i, 1, kKeyBlock,
                                 b + queries.begin * kTileColumns, kTileColumns, true, c + i * padded + j, padded);
    }
  }
}

// The visible range, widened to whole vectors and to the groups of four columns that share a dropout counter.
MS_INLINE Range in_vectors(Range visible) {
  constexpr int64_t kStep = kLanes < 4 ? 4 : kLanes;
  return {visible.begin / kStep * kStep, (visible.end + kStep - 1) / kStep * kStep};
}

// Zeros before and after the visible range, as far as register tiles and vectors read.
MS_INLINE void clear_around(Range visible, float* row) {
  constexpr int64_t kReach = kTileRows > kLanes ? kTileRows : kLanes < 4 ? 4 : kLanes;
  for (int64_t i = clamp(visible.begin - kReach, 0, kKeyBlock); i < visible.begin; ++i) row[i] = 0;
  const int64_t end = clamp(visible.end + kReach, 0, kKeyBlock);
  for (int64_t i = visible.end; i < end; ++i) row[i] = 0;
}

// target [rows, padded] = source (rows of d, stride apart) * factor; columns from d on are 0.
template <class T>
void copy_rows(const T* source, int64_t stride, int64_t rows, int64_t d, int64_t padded, float factor, float* target) {
  const Vec f = broadcast(factor);
  for (int64_t row = 0; row < rows; ++row, source += stride, target += padded) {
    int64_t i = 0;
    for (; i + kLanes <= d; i += kLanes) store(target + i, load(source + i) * f);
    for (; i < d; ++i) target[i] = to_float(source[i]) * factor;
    for (; i < padded; ++i) target[i] = 0;
  }
}

template <class T>
void store_rows(const float* source, int64_t padded, int64_t rows, int64_t d, float factor, T* target, int64_t stride) {
  const Vec f = broadcast(factor);
  for (int64_t row = 0; row < rows; ++row, source += padded, target += stride) {
    int64_t i = 0;
    for (; i + kLanes <= d; i += kLanes) store(target + i, load(source + i) * f);
    if (i < d) store_partial(target + i, load_partial(source + i, d - i) * f, d - i);
  }
}

// Adds to target what store_rows stores.
template <class T>
void add_rows(const float* source, int64_t padded, int64_t rows, int64_t d, float factor, T* target, int64_t stride) {
  const Vec f = broadcast(factor);
  for (int64_t row = 0; row < rows; ++row, source += padded, target += stride) {
    int64_t i = 0;
    for (; i + kLanes <= d; i += kLanes) store(target + i, fma(load(source + i), f, load(target + i)));
    if (i < d)
      store_partial(target + i, fma(load_partial(source + i, d - i), f, load_partial(target + i, d - i)), d - i);
  }
}

inline void fill(float* target, int64_t n, float value) {
  for (int64_t i = 0; i < n; ++i) target[i] = value;
}

// scores -> softcap * tanh(scores / softcap), on whole vectors.
MS_INLINE void cap_scores(float* scores, int64_t keys, float softcap) {
  const Vec cap = broadcast(softcap), inverse = broadcast(1.0F / softcap);
  for (int64_t i = 0; i < keys; i += kLanes) store(scores + i, cap * tanh(load(scores + i) * inverse));
}

// Dropout factors of keys [first_key, first_key + keys) of one query. factors: room for kColumnsOfCounter more; returns
// where in it they begin, for a counter has several columns, and the first key may be any of them.
constexpr int64_t kColumnsOfCounter = 4;
MS_INLINE const float* factors_of_keys(const AttentionParams& params, int64_t query, int64_t first_key, int64_t keys,
                                       float* factors) {
  const int64_t column = params.first_column + first_key, before = column % kColumnsOfCounter;
  fill_dropout_factors(params.dropout, params.sample, params.first_row + query, column - before, keys + before,
                       factors);
  return factors + before;
}

// x *= dropout factors of keys [first_key, first_key + keys) of one query.
MS_INLINE void drop(const AttentionParams& params, int64_t query, int64_t first_key, int64_t keys, float* x) {
  float memory[kKeyBlock + kColumnsOfCounter];
  const float* const factors = factors_of_keys(params, query, first_key, keys, memory);
  for (int64_t i = 0; i < keys; i += kLanes) store(x + i, load(x + i) * load(factors + i));
}

// Bias of one query for keys [first_key, first_key + keys), on whole vectors: the value to add to visible scores, -inf
// for masked keys, 0 outside the visible range.
MS_INLINE void fill_bias(const ScoreBias& score_bias, int64_t query, int64_t first_key, Range visible, Range vectors,
                         float* bias) {
  const float* values =
      score_bias.values == nullptr ? nullptr : score_bias.values + query * score_bias.row_stride + first_key;
  const uint8_t* mask =
      score_bias.mask == nullptr ? nullptr : score_bias.mask + query * score_bias.mask_stride + first_key;
  const int64_t position = query + score_bias.distance - first_key;
  for (int64_t i = vectors.begin; i < vectors.end; ++i) bias[i] = 0;
  if (score_bias.slope != 0) {
    for (int64_t i = visible.begin; i < visible.end; ++i) {
      const float apart = std::abs(static_cast<float>(position - i));
      bias[i] = -score_bias.slope * (score_bias.root ? std::sqrt(apart) : apart);
    }
  }
  if (values != nullptr) {
    for (int64_t i = visible.begin; i < visible.end; ++i) bias[i] += values[i] * score_bias.factor;
  }
  if (mask != nullptr) {
    for (int64_t i = visible.begin; i < visible.end; ++i) {
      bias[i] = mask[i] != 0 ? -std::numeric_limits<float>::infinity() : bias[i];
    }
  }
}

// One step of the online softmax: visible scores become exp(score - new max), scores around them 0; updates `max_score`
// and `sum`. Returns the factor to multiply earlier sums by.
MS_INLINE float softmax_step(float* scores, Range visible, float& max_score, float& sum) {
  const auto [begin, end] = in_vectors(visible);
  for (int64_t i = begin; i < visible.begin; ++i) scores[i] = -std::numeric_limits<float>::infinity();
  for (int64_t i = visible.end; i < end; ++i) scores[i] = -std::numeric_limits<float>::infinity();
  Vec most = load(scores + begin);
  for (int64_t i = begin + kLanes; i < end; i += kLanes) most = max(most, load(scores + i));
  const float block_max = reduce_max(most);
  const float next = block_max > max_score ? block_max : max_score;
  const bool blind = next == -std::numeric_limits<float>::infinity();  // the mask has hidden all keys so far
  const Vec shift = broadcast(blind ? 0.0F : next);
  Vec total = zero();
  for (int64_t i = begin; i < end; i += kLanes) {
    const Vec p = exp(load(scores + i) - shift);
    store(scores + i, p);
    total = total + p;
  }
  const float factor = blind ? 1.0F : std::exp(max_score - next);
  max_score = next;
  sum = sum * factor + reduce_add(total);
  return factor;
}

template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, const AttentionParams& params, T* out,
               const SoftmaxStatistics& statistics, float* workspace) {
  const int64_t keys = shape.keys, d = shape.d, d_v = shape.value_d, padded_v = padded_head(d_v);
  float* k_strips = workspace;                            // [keys / kTileColumns][d][kTileColumns]
  float* v_strips = k_strips + operand_floats(keys, d);   // [padded_v / kTileColumns][keys][kTileColumns]
  float* queries = v_strips + operand_floats(keys, d_v);  // [kQueryBlock][d], times scale
  float* sums = queries + kQueryBlock * padded_head(d);   // [kQueryBlock][padded_v]
  float* scores = sums + kQueryBlock * padded_v;          // [kQueryBlock][kKeyBlock]
  const bool biased = params.bias.any();
  pack<kTileColumns>(k, shape.kv_stride, true, keys, d, k_strips);
  pack<kTileColumns>(v, shape.value_stride, false, d_v, keys, v_strips);
  fill(queries, kQueryBlock * d, 0.0F);

  for (int64_t s = 0; s < num_spans(params); ++s) {
    const Span span = span_of(params, shape.queries, s);
    for (int64_t query = span.begin; query < span.end; query += kQueryBlock) {
      const int64_t rows = span.end - query < kQueryBlock ? span.end - query : kQueryBlock;
      float row_max[kQueryBlock], row_sum[kQueryBlock], bias[kKeyBlock];
      fill(row_max, rows, -std::numeric_limits<float>::infinity());
      fill(row_sum, rows, 0.0F);
      fill(sums, kQueryBlock * padded_v, 0.0F);
      copy_rows(q + query * shape.q_stride, shape.q_stride, rows, d, d, params.scale, queries);
      for (int64_t run = span.first_run; run < span.end_run; ++run) {
        const SeenRun of = run_of(params, keys, s, run);
        const AttentionParams of_run = at_run(params, params, s, run);
        const Range seen = keys_of(block_of(of, rows, of.end, query, 0), 0, rows - 1);
        for (int64_t key = seen.begin / kKeyBlock * kKeyBlock; key < seen.end; key += kKeyBlock) {
          const ScoreBlock block = block_of(of, rows, kKeyBlock, query, key);
          score_product(block, d, queries, d, k_strips + key * d, scores);
          for (int64_t i = 0; i < rows; ++i) {
            const Range visible = keys_of(block, i, i);
            float* row = scores + i * kKeyBlock;
            if (visible.begin < visible.end) {
              const auto [first, end] = in_vectors(visible);
              if (params.softcap > 0) cap_scores(row + first, end - first, params.softcap);
              if (biased) {
                fill_bias(of_run.bias, query + i, key, visible, {first, end}, bias);
                for (int64_t j = first; j < end; j += kLanes) store(row + j, load(row + j) + load(bias + j));
              }
              const float factor = softmax_step(row, visible, row_max[i], row_sum[i]);
              if (params.dropout.probability > 0) drop(of_run, query + i, key + first, end - first, row + first);
              if (factor != 1.0F) {
                const Vec f = broadcast(factor);
                for (int64_t j = 0; j < padded_v; j += kLanes) {
                  store(sums + i * padded_v + j, load(sums + i * padded_v + j) * f);
                }
              }
            }
            clear_around(visible, row);
          }
          add_weighted_keys(block, scores, padded_v, v_strips + key * kTileColumns, keys * kTileColumns, sums);
          poll_progress();
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        const float inverse = row_sum[i] == 0 ? 0.0F : 1.0F / row_sum[i];
        store_rows(sums + i * padded_v, padded_v, 1, d_v, inverse, out + (query + i) * shape.out_stride, 0);
        statistics.lse[query + i] = row_max[i] + std::log(row_sum[i]);
        if (statistics.max != nullptr) statistics.max[query + i] = row_max[i];
        if (statistics.sum != nullptr) statistics.sum[query + i] = row_sum[i];
      }
    }
  }
}

// scores: scale * q k^T, dp: dO V^T, both kKeyBlock wide. Outside `visible` both become 0. Inside, with p = exp(capped
// score + bias - lse) and dropout factors f: scores = p f (for dV), dp = p (dp f - delta) times the softcap's
// derivative 1 - (capped / softcap)^2 (for dQ and dK). Without that derivative dp is the bias gradient.
MS_INLINE void softmax_backward_row(const AttentionParams& params, int64_t query, int64_t first_key, Range visible,
                                    float lse, float delta, float* scores, float* dp) {
  const bool blind = lse == -std::numeric_limits<float>::infinity();  // the query sees no key: every p is 0
  const Vec shift = broadcast(blind ? 0.0F : lse), mean = broadcast(delta), one = broadcast(1.0F);
  const auto [first, end] = in_vectors(visible);
  const bool drops = params.dropout.probability > 0, biased = params.bias.any();
  const bool wanted = params.bias.gradient != nullptr;
  float memory[kKeyBlock + kColumnsOfCounter], bias[kKeyBlock], dbias[kKeyBlock];
  const float* const factors = drops ? factors_of_keys(params, query, first_key + first, end - first, memory) : memory;
  if (biased) fill_bias(params.bias, query, first_key, visible, {first, end}, bias);
  const Vec inverse = broadcast(params.softcap > 0 ? 1.0F / params.softcap : 0.0F), cap = broadcast(params.softcap);
  for (int64_t i = first; i < end; i += kLanes) {
    Vec score = load(scores + i), slope = one;
    if (params.softcap > 0) {
      const Vec t = tanh(score * inverse);
      score = cap * t;
      slope = one - t * t;
    }
    if (biased) score = score + load(bias + i);
    const Vec p = exp(score - shift), factor = drops ? load(factors + i - first) : one;
    store(scores + i, p * factor);
    const Vec gradient = p * (load(dp + i) * factor - mean);
    if (wanted) store(dbias + i, gradient);
    store(dp + i, gradient * slope);
  }
  if (wanted) {
    float* target = params.bias.gradient + query * params.bias.row_stride + first_key;
    for (int64_t i = visible.begin; i < visible.end; ++i) target[i] += dbias[i] * params.bias.factor;
  }
  clear_around(visible, scores);
  clear_around(visible, dp);
}

template <class T>
void attention_backward(const AttentionShape& shape, int64_t heads, const T* dout, const T* q, const T* k, const T* v,
                        const T* out, const float* lse, const AttentionParams* head_params, T* dq, T* dk, T* dv,
                        float* workspace) {
  const int64_t keys = shape.keys, d = shape.d, d_v = shape.value_d, keys_padded = padded_keys(keys);
  const int64_t padded = padded_head(d), padded_v = padded_head(d_v), operand = operand_floats(keys, d);
  const float scale = head_params->scale;
  float* k_strips = workspace;                              // strips of keys, for the scores
  float* v_strips = k_strips + operand;                     // strips of keys
  float* k_columns = v_strips + operand_floats(keys, d_v);  // strips of columns, for dQ
  float* dk_sums = k_columns + operand;
  float* dv_sums = dk_sums + keys_padded * padded;
  float* queries = dv_sums + keys_padded * padded_v;  // [kQueryBlock][d], times scale
  float* q_columns = queries + block_floats(d);       // strips of columns, for dK
  float* gradients = q_columns + block_floats(d);     // dO, in the layout of queries: [kQueryBlock][d_v]
  float* g_columns = gradients + block_floats(d_v);
  float* dq_sums = g_columns + block_floats(d_v);
  float* scores = dq_sums + block_floats(d);
  float* dp = scores + kQueryBlock * kKeyBlock;
  pack<kTileColumns>(k, shape.kv_stride, true, keys, d, k_strips);
  pack<kTileColumns>(v, shape.value_stride, true, keys, d_v, v_strips);
  pack<kTileColumns>(k, shape.kv_stride, false, d, keys, k_columns);
  fill(dk_sums, keys_padded * padded, 0.0F);
  fill(dv_sums, keys_padded * padded_v, 0.0F);
  fill(queries, kQueryBlock * d, 0.0F);
  fill(gradients, kQueryBlock * d_v, 0.0F);

  const int64_t next = shape.head_stride, next_out = shape.out_head_stride;
  for (int64_t head = 0; head < heads;
       ++head, q += next, dq += next, out += next_out, dout += next_out, lse += shape.lse_stride) {
    for (int64_t s = 0; s < num_spans(*head_params); ++s) {
      const Span span = span_of(*head_params, shape.queries, s);
      for (int64_t query = span.begin; query < span.end; query += kQueryBlock) {
        const int64_t rows = span.end - query < kQueryBlock ? span.end - query : kQueryBlock;
        const int64_t first = query * shape.q_stride, first_out = query * shape.out_stride;
        copy_rows(q + first, shape.q_stride, rows, d, d, scale, queries);
        copy_rows(dout + first_out, shape.out_stride, rows, d_v, d_v, 1.0F, gradients);
        pack<kTileColumns>(q + first, shape.q_stride, false, d, rows, q_columns);
        pack<kTileColumns>(dout + first_out, shape.out_stride, false, d_v, rows, g_columns);
        fill(dq_sums, kQueryBlock * padded, 0.0F);
        float delta[kQueryBlock];  // rowsum(dO * O), equal to rowsum(dP * P)
        for (int64_t i = 0; i < rows; ++i) {
          const T* o = out + first_out + i * shape.out_stride;
          const T* g = dout + first_out + i * shape.out_stride;
          Vec sum = zero();
          int64_t j = 0;
          for (; j + kLanes <= d_v; j += kLanes) sum = fma(load(o + j), load(g + j), sum);
          if (j < d_v) sum = fma(load_partial(o + j, d_v - j), load_partial(g + j, d_v - j), sum);
          delta[i] = reduce_add(sum);
        }
        for (int64_t run = span.first_run; run < span.end_run; ++run) {
          const SeenRun of = run_of(*head_params, keys, s, run);
          const AttentionParams of_run = at_run(head_params[head], *head_params, s, run);
          const Range seen = keys_of(block_of(of, rows, of.end, query, 0), 0, rows - 1);
          for (int64_t key = seen.begin / kKeyBlock * kKeyBlock; key < seen.end; key += kKeyBlock) {
            const ScoreBlock block = block_of(of, rows, kKeyBlock, query, key);
            score_product(block, d, queries, d, k_strips + key * d, scores);
            score_product(block, d_v, gradients, d_v, v_strips + key * d_v, dp);
            for (int64_t i = 0; i < rows; ++i) {
              softmax_backward_row(of_run, query + i, key, keys_of(block, i, i), lse[query + i], delta[i],
                                   scores + i * kKeyBlock, dp + i * kKeyBlock);
            }
            add_weighted_queries(block, scores, padded_v, g_columns, rows * kTileColumns, dv_sums + key * padded_v);
            add_weighted_queries(block, dp, padded, q_columns, rows * kTileColumns, dk_sums + key * padded);
            add_weighted_keys(block, dp, padded, k_columns + key * kTileColumns, keys * kTileColumns, dq_sums);
            poll_progress();
          }
        }
        store_rows(dq_sums, padded, rows, d, scale, dq + first, shape.q_stride);
      }
    }
  }
  if (shape.adds_to_keys) {
    add_rows(dk_sums, padded, keys, d, scale, dk, shape.kv_stride);
    return add_rows(dv_sums, padded_v, keys, d_v, 1.0F, dv, shape.value_stride);
  }
  store_rows(dk_sums, padded, keys, d, scale, dk, shape.kv_stride);
  store_rows(dv_sums, padded_v, keys, d_v, 1.0F, dv, shape.value_stride);
}
