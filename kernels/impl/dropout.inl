// dropout_factors of dropout.h, shared by dropout.cpp and attention.inl.

// Handles blocks of four columns, with Philox in lanes as in kernels/philox.h.
inline void fill_dropout_factors(const Dropout& dropout, int64_t sample, int64_t row, int64_t first_column, int64_t n,
                                 float* factors) {
  constexpr int64_t kBlocks = 16;
  const float keep = 1.0F / (1.0F - dropout.probability);
  const auto threshold = static_cast<uint32_t>(static_cast<double>(dropout.probability) * 4294967296.0);
  for (int64_t done = 0; done < n; done += 4 * kBlocks) {
    uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
    const auto first = static_cast<uint32_t>((first_column + done) / 4);
    for (int64_t i = 0; i < kBlocks; ++i) {
      c0[i] = first + static_cast<uint32_t>(i);
      c1[i] = static_cast<uint32_t>(row);
      c2[i] = static_cast<uint32_t>(sample);
      c3[i] = static_cast<uint32_t>(sample >> 32);
    }
    auto key0 = static_cast<uint32_t>(dropout.key), key1 = static_cast<uint32_t>(dropout.key >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int64_t i = 0; i < kBlocks; ++i) {
        const uint64_t product0 = uint64_t{0xD2511F53U} * c0[i];
        const uint64_t product1 = uint64_t{0xCD9E8D57U} * c2[i];
        c0[i] = static_cast<uint32_t>(product1 >> 32) ^ c1[i] ^ key0;
        c1[i] = static_cast<uint32_t>(product1);
        c2[i] = static_cast<uint32_t>(product0 >> 32) ^ c3[i] ^ key1;
        c3[i] = static_cast<uint32_t>(product0);
      }
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
    float block[4 * kBlocks];
    for (int64_t i = 0; i < kBlocks; ++i) {
      block[4 * i] = c0[i] < threshold ? 0.0F : keep;
      block[4 * i + 1] = c1[i] < threshold ? 0.0F : keep;
      block[4 * i + 2] = c2[i] < threshold ? 0.0F : keep;
      block[4 * i + 3] = c3[i] < threshold ? 0.0F : keep;
    }
    const int64_t count = n - done < 4 * kBlocks ? n - done : 4 * kBlocks;
    std::memcpy(factors + done, block, static_cast<size_t>(count) * sizeof(float));
  }
}
