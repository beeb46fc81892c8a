// Body of cross_entropy.h.

inline float row_max(const float* logits, int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Vec most0 = broadcast(kLowest), most1 = most0;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    most0 = max(load(logits + i), most0);
    most1 = max(load(logits + i + kLanes), most1);
  }
  float most = reduce_max(max(most0, most1));
  for (; i < n; ++i) most = logits[i] > most ? logits[i] : most;
  return most;
}

inline float row_sum_exp(const float* logits, int64_t n, float max_logit) {
  const Vec shift = broadcast(max_logit);
  // A vocabulary is long: sum blocks of 4096 columns in fp32, then the blocks in double.
  constexpr int64_t kBlock = 4096;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = n - begin < kBlock ? n : begin + kBlock;
    Vec sum0 = zero(), sum1 = zero();
    int64_t i = begin;
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      prefetch_ahead(logits + i);
      prefetch_ahead(logits + i + kLanes);
      sum0 = sum0 + exp_below_one(load(logits + i) - shift);
      sum1 = sum1 + exp_below_one(load(logits + i + kLanes) - shift);
    }
    for (; i + kLanes <= end; i += kLanes) sum0 = sum0 + exp_below_one(load(logits + i) - shift);
    float sum = reduce_add(sum0 + sum1);
    if (i < end) {
      float lanes[kLanes];
      store(lanes, exp_below_one(load_partial(logits + i, end - i) - shift));
      for (int64_t lane = 0; lane < end - i; ++lane) sum += lanes[lane];
    }
    total += sum;
  }
  return static_cast<float>(total);
}

inline void row_cross_entropy_backward(float* logits, int64_t n, float max_logit, float sum_exp, int64_t label,
                                       float scale) {
  const Vec shift = broadcast(max_logit), factor = broadcast(scale / sum_exp);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    prefetch_ahead(logits + i);
    store(logits + i, exp_below_one(load(logits + i) - shift) * factor);
  }
  if (i < n) store_partial(logits + i, exp_below_one(load_partial(logits + i, n - i) - shift) * factor, n - i);
  if (label >= 0 && label < n) logits[label] -= scale;
}
