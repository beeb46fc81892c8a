// Body of attention.h.
//
// Tiles of kQueryBlock x kKeyBlock scores. Both are whole numbers of register tiles either way round (scores are a left
// operand too, plain and transposed), so no product has an edge: operands are copied to fp32 with padding, once per
// head for K and V, once per block for Q and dO.

#include "kernels/impl/dropout.inl"
#include "kernels/impl/micro_tile.inl"
#include "kernels/impl/pack.inl"

static_assert(kQueryBlock % kTileRows == 0 && kKeyBlock % kTileRows == 0 && kKeyBlock % kTileColumns == 0);
static_assert(kHeadPadding % kTileColumns == 0);

// c [rows, columns] (+)= a * b. rows and columns are rounded up to whole tiles: operands and c have room for that.
// Element (i, p) of a is a[i * a_row + p * a_step]; row p of b's strip j (kTileColumns wide) is at
// b + j * b_strip + p * b_step.
MS_INLINE void tile_product(int64_t rows, int64_t columns, int64_t k, const float* a, int64_t a_row, int64_t a_step,
                            const float* b, int64_t b_step, int64_t b_strip, bool accumulate, float* c, int64_t ldc) {
  for (int64_t j = 0; j < columns; j += kTileColumns, b += b_strip) {
    for (int64_t i = 0; i < rows; i += kTileRows) {
      micro_tile_rows<kTileRows>(k, a + i * a_row, a_row, a_step, b, b_step, accumulate, c + i * ldc + j, ldc);
    }
  }
}

// target [rows, padded] = source (rows of d, stride apart) * factor, columns from d on zero.
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

inline void fill(float* target, int64_t n, float value) {
  for (int64_t i = 0; i < n; ++i) target[i] = value;
}

// Keys of the block at key_begin that the queries [query_begin, query_begin + rows) see, in whole tiles.
inline int64_t visible_keys(int64_t query_begin, int64_t rows, int64_t key_begin) {
  const int64_t keys = query_begin + rows - key_begin;
  return keys >= kKeyBlock ? kKeyBlock : (keys + kTileColumns - 1) / kTileColumns * kTileColumns;
}

// The keys [begin, end) of a block that one query sees.
struct Visible {
  int64_t begin, end;
};

// query: counted from the block's first key. keys: of the block, in whole tiles.
inline Visible visible_to(int64_t query, int64_t keys, int64_t window) {
  const int64_t end = query < 0 ? 0 : query + 1 < keys ? query + 1 : keys;
  const int64_t begin = window > 0 && query + 1 > window ? query + 1 - window : 0;
  return {begin < end ? begin : end, end};
}

// The first key block that the queries from query_begin on see.
inline int64_t first_key_block(int64_t query_begin, int64_t window) {
  const int64_t first = window > 0 && query_begin + 1 > window ? query_begin + 1 - window : 0;
  return first / kKeyBlock * kKeyBlock;
}

// scores -> softcap * tanh(scores / softcap), in whole vectors.
MS_INLINE void cap_scores(float* scores, int64_t keys, float softcap) {
  const Vec cap = broadcast(softcap), inverse = broadcast(1.0F / softcap);
  for (int64_t i = 0; i < keys; i += kLanes) store(scores + i, cap * tanh(load(scores + i) * inverse));
}

// x *= the dropout factors of keys [first_key, first_key + keys) of a query.
MS_INLINE void drop(const Dropout& dropout, int64_t sample, int64_t query, int64_t first_key, int64_t keys, float* x) {
  float factors[kKeyBlock];
  fill_dropout_factors(dropout, sample, query, first_key, keys, factors);
  for (int64_t i = 0; i < keys; i += kLanes) store(x + i, load(x + i) * load(factors + i));
}

// One step of the online softmax over `keys` scores, of which only the visible count: scores become
// exp(score - new max), the rest 0; `max` and `sum` move on. Returns the factor that earlier sums shrink by.
MS_INLINE float softmax_step(float* scores, Visible visible, int64_t keys, float& max_score, float& sum) {
  for (int64_t i = 0; i < visible.begin; ++i) scores[i] = -std::numeric_limits<float>::infinity();
  for (int64_t i = visible.end; i < keys; ++i) scores[i] = -std::numeric_limits<float>::infinity();
  Vec most = load(scores);
  for (int64_t i = kLanes; i < keys; i += kLanes) most = max(most, load(scores + i));
  const float block_max = reduce_max(most);
  const float next = block_max > max_score ? block_max : max_score;
  const Vec shift = broadcast(next);
  Vec total = zero();
  for (int64_t i = 0; i < keys; i += kLanes) {
    const Vec p = exp(load(scores + i) - shift);
    store(scores + i, p);
    total = total + p;
  }
  const float factor = std::exp(max_score - next);
  max_score = next;
  sum = sum * factor + reduce_add(total);
  return factor;
}

template <class T>
void causal_attention(const AttentionShape& shape, const T* q, const T* k, const T* v, const AttentionRule& rule,
                      T* out, float* lse, float* workspace) {
  const int64_t d = shape.d, padded = padded_head(d), keys_padded = padded_keys(shape.seq);
  float* k_strips = workspace;                      // [keys / kTileColumns][d][kTileColumns]
  float* values = k_strips + keys_padded * padded;  // [keys][padded]
  float* queries = values + keys_padded * padded;   // [kQueryBlock][d], times scale
  float* sums = queries + kQueryBlock * padded;     // [kQueryBlock][padded]
  float* scores = sums + kQueryBlock * padded;      // [kQueryBlock][kKeyBlock]
  pack<kTileColumns>(k, shape.kv_stride, true, shape.seq, d, k_strips);
  copy_rows(v, shape.kv_stride, shape.seq, d, padded, 1.0F, values);
  fill(values + shape.seq * padded, (keys_padded - shape.seq) * padded, 0.0F);  // 0 * NaN would not be 0
  fill(queries, kQueryBlock * d, 0.0F);

  for (int64_t query = 0; query < shape.seq; query += kQueryBlock) {
    const int64_t rows = shape.seq - query < kQueryBlock ? shape.seq - query : kQueryBlock;
    float row_max[kQueryBlock], row_sum[kQueryBlock];
    fill(row_max, rows, -std::numeric_limits<float>::infinity());
    fill(row_sum, rows, 0.0F);
    fill(sums, kQueryBlock * padded, 0.0F);
    copy_rows(q + query * shape.q_stride, shape.q_stride, rows, d, d, rule.scale, queries);
    for (int64_t key = first_key_block(query, rule.window); key < query + rows; key += kKeyBlock) {
      const int64_t keys = visible_keys(query, rows, key);
      tile_product(rows, keys, d, queries, d, 1, k_strips + key * d, kTileColumns, d * kTileColumns, false, scores,
                   kKeyBlock);
      for (int64_t i = 0; i < rows; ++i) {
        const Visible visible = visible_to(query + i - key, keys, rule.window);
        float* row = scores + i * kKeyBlock;
        if (visible.begin == visible.end) {  // this query sees no key of the block
          fill(row, keys, 0.0F);
          continue;
        }
        if (rule.softcap > 0) cap_scores(row, keys, rule.softcap);
        const float factor = softmax_step(row, visible, keys, row_max[i], row_sum[i]);
        if (rule.dropout.probability > 0) drop(rule.dropout, rule.sample, query + i, key, keys, row);
        if (factor != 1.0F) {
          const Vec f = broadcast(factor);
          for (int64_t j = 0; j < padded; j += kLanes) {
            store(sums + i * padded + j, load(sums + i * padded + j) * f);
          }
        }
      }
      tile_product(rows, padded, keys, scores, kKeyBlock, 1, values + key * padded, padded, kTileColumns, true, sums,
                   padded);
    }
    for (int64_t i = 0; i < rows; ++i) {
      store_rows(sums + i * padded, padded, 1, d, 1.0F / row_sum[i], out + (query + i) * shape.q_stride, 0);
      lse[query + i] = row_max[i] + std::log(row_sum[i]);
    }
  }
}

// scores: scale * q k^T, dp: dO V^T, both kKeyBlock wide. Outside `visible` both become 0; inside, with
// p = exp(capped score - lse) and f the dropout's factors: scores = p f (for dV), dp = p (dp f - delta) times the
// softcap's slope 1 - (capped / softcap)^2 (for dQ and dK).
MS_INLINE void softmax_backward_row(const AttentionRule& rule, const Dropout& dropout, int64_t query, int64_t first_key,
                                    Visible visible, float lse, float delta, float* scores, float* dp) {
  const Vec shift = broadcast(lse), mean = broadcast(delta), one = broadcast(1.0F);
  const int64_t vectors = (visible.end + kLanes - 1) / kLanes * kLanes;
  const bool drops = dropout.probability > 0;
  float factors[kKeyBlock];
  if (drops) fill_dropout_factors(dropout, rule.sample, query, first_key, vectors, factors);
  const Vec inverse = broadcast(rule.softcap > 0 ? 1.0F / rule.softcap : 0.0F), cap = broadcast(rule.softcap);
  for (int64_t i = visible.begin / kLanes * kLanes; i < vectors; i += kLanes) {
    Vec score = load(scores + i), slope = one;
    if (rule.softcap > 0) {
      const Vec t = tanh(score * inverse);
      score = cap * t;
      slope = one - t * t;
    }
    const Vec p = exp(score - shift), factor = drops ? load(factors + i) : one;
    store(scores + i, p * factor);
    store(dp + i, p * (load(dp + i) * factor - mean) * slope);
  }
  fill(scores, visible.begin, 0.0F);
  fill(dp, visible.begin, 0.0F);
  fill(scores + visible.end, kKeyBlock - visible.end, 0.0F);
  fill(dp + visible.end, kKeyBlock - visible.end, 0.0F);
}

template <class T>
void causal_attention_backward(const AttentionShape& shape, int64_t heads, const T* dout, const T* q, const T* k,
                               const T* v, const T* out, const float* lse, const AttentionRule& rule, T* dq, T* dk,
                               T* dv, float* workspace) {
  const int64_t seq = shape.seq, d = shape.d, padded = padded_head(d), keys_padded = padded_keys(seq);
  float* k_strips = workspace;
  float* v_strips = k_strips + keys_padded * padded;
  float* keys_rows = v_strips + keys_padded * padded;
  float* dk_sums = keys_rows + keys_padded * padded;
  float* dv_sums = dk_sums + keys_padded * padded;
  float* queries = dv_sums + keys_padded * padded;
  float* gradients = queries + kQueryBlock * padded;  // dO
  float* dq_sums = gradients + kQueryBlock * padded;
  float* scores = dq_sums + kQueryBlock * padded;
  float* dp = scores + kQueryBlock * kKeyBlock;
  pack<kTileColumns>(k, shape.kv_stride, true, seq, d, k_strips);
  pack<kTileColumns>(v, shape.kv_stride, true, seq, d, v_strips);
  copy_rows(k, shape.kv_stride, seq, d, padded, 1.0F, keys_rows);
  fill(keys_rows + seq * padded, (keys_padded - seq) * padded, 0.0F);
  fill(dk_sums, keys_padded * padded, 0.0F);
  fill(dv_sums, keys_padded * padded, 0.0F);
  fill(queries, kQueryBlock * padded, 0.0F);
  fill(gradients, kQueryBlock * padded, 0.0F);

  Dropout dropout = rule.dropout;
  for (int64_t head = 0; head < heads; ++head, q += d, out += d, dout += d, dq += d, lse += seq) {
    for (int64_t query = 0; query < seq; query += kQueryBlock) {
      const int64_t rows = seq - query < kQueryBlock ? seq - query : kQueryBlock;
      const int64_t first = query * shape.q_stride;
      copy_rows(q + first, shape.q_stride, rows, d, padded, rule.scale, queries);
      copy_rows(dout + first, shape.q_stride, rows, d, padded, 1.0F, gradients);
      fill(dq_sums, kQueryBlock * padded, 0.0F);
      float delta[kQueryBlock];  // rowsum(dO * O), equal to rowsum(dP * P)
      for (int64_t i = 0; i < rows; ++i) {
        const T* o = out + first + i * shape.q_stride;
        const T* g = dout + first + i * shape.q_stride;
        Vec sum = zero();
        int64_t j = 0;
        for (; j + kLanes <= d; j += kLanes) sum = fma(load(o + j), load(g + j), sum);
        if (j < d) sum = fma(load_partial(o + j, d - j), load_partial(g + j, d - j), sum);
        delta[i] = reduce_add(sum);
      }
      for (int64_t key = first_key_block(query, rule.window); key < query + rows; key += kKeyBlock) {
        const int64_t keys = visible_keys(query, rows, key);
        tile_product(rows, keys, d, queries, padded, 1, k_strips + key * d, kTileColumns, d * kTileColumns, false,
                     scores, kKeyBlock);
        tile_product(rows, keys, d, gradients, padded, 1, v_strips + key * d, kTileColumns, d * kTileColumns, false, dp,
                     kKeyBlock);
        for (int64_t i = 0; i < rows; ++i) {
          softmax_backward_row(rule, dropout, query + i, key, visible_to(query + i - key, kKeyBlock, rule.window),
                               lse[query + i], delta[i], scores + i * kKeyBlock, dp + i * kKeyBlock);
        }
        tile_product(keys, padded, rows, scores, 1, kKeyBlock, gradients, padded, kTileColumns, true,
                     dv_sums + key * padded, padded);
        tile_product(keys, padded, rows, dp, 1, kKeyBlock, queries, padded, kTileColumns, true, dk_sums + key * padded,
                     padded);
        tile_product(rows, padded, keys, dp, kKeyBlock, 1, keys_rows + key * padded, padded, kTileColumns, true,
                     dq_sums, padded);
      }
      store_rows(dq_sums, padded, rows, d, rule.scale, dq + first, shape.q_stride);
    }
    dropout.key += kHeadDropoutKeyStep;
  }
  store_rows(dk_sums, padded, seq, d, 1.0F, dk, shape.kv_stride);
  store_rows(dv_sums, padded, seq, d, 1.0F, dv, shape.kv_stride);
}
