#include "train/model/tensor_recorder.h"

#include <algorithm>
#include <cstring>

#include "core/rng.h"
#include "kernels/bf16.h"
#include "kernels/fp16.h"

namespace ms::train {

void TensorRecorder::begin(const Step& step) {
  step_ = step;
  seen_.clear();
  recorded_.clear();
}

std::vector<TensorRecorder::Recorded> TensorRecorder::take() {
  step_ = {};
  microbatch_ = nullptr;
  return std::exchange(recorded_, {});
}

namespace {

std::vector<float> multiplied(const core::TensorView& x, double factor) {
  std::vector<float> result(static_cast<size_t>(x.size()));
  const auto fill = [&](const auto* values) {
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = static_cast<float>(static_cast<double>(kernels::to_float(values[i])) * factor);
  };
  if (x.dtype() == core::DType::kBf16) {
    fill(reinterpret_cast<const kernels::bf16*>(x.bytes()));
  } else if (x.dtype() == core::DType::kFp16) {
    fill(reinterpret_cast<const kernels::fp16*>(x.bytes()));
  } else {
    fill(x.data<float>());
  }
  return result;
}

}  // namespace

void TensorRecorder::record(std::string name, const core::TensorView& given, Split split, double factor) {
  MS_CHECK(microbatch_ != nullptr, name, " of no micro-batch");
  const bool is_copy = split == Split::kRows && !place_.sequence_parallel && place_.tp_rank > 0;
  const int64_t first_sample = microbatch_->samples.front() - step_.first_sample;
  if (is_copy || !wants(name) || !seen_.emplace(name, first_sample).second) return;
  std::vector<float> values;
  if (factor != 1) values = multiplied(given, factor);
  const core::TensorView x = factor == 1 ? given : core::TensorView(values.data(), core::DType::kFp32, given.shape());
  const int64_t rows = x.dim(0), batch = x.dim(1), columns = x.size() / (rows * batch), tp = place_.tp_size;
  const bool cuts_rows = split == Split::kRows && place_.sequence_parallel;
  const layout::SequenceShare& share = microbatch_->share;
  const int64_t all_rows = share.is_whole() ? (cuts_rows ? rows * tp : rows) : share.seq_length();
  core::ShardedTensor whole;
  whole.key = std::move(name);
  whole.role = core::TensorRole::kBuffer;
  whole.dtype = x.dtype();
  whole.global_shape = {all_rows, step_.samples, split == Split::kRows ? columns : columns * tp};
  whole.global_offset = {0, first_sample, 0};
  const int64_t first = cuts_rows ? first_row(x) : 0;
  share.for_each_run(first, first + rows, [&](int64_t row, int64_t position, int64_t count) {
    whole.global_offset[0] = position;
    add_columns(whole, x.rows(row - first, row - first + count), split);
  });
}

void TensorRecorder::add_columns(core::ShardedTensor& whole, const core::TensorView& x, Split split) {
  const int64_t columns = x.size() / (x.dim(0) * x.dim(1)), tp = place_.tp_size;
  if (split == Split::kRows) return add(whole, 0, columns, x, 0);
  if (split == Split::kVocabulary) {
    whole.global_shape[2] = place_.vocab_size;
    const int64_t first = place_.tp_rank * columns;
    const int64_t width = std::clamp<int64_t>(place_.vocab_size - first, 0, columns);
    if (width > 0) add(whole, 0, width, x, first);
    return;
  }
  const int parts = split == Split::kGatedColumns ? 2 : 1;
  const int64_t width = columns / parts;
  for (int part = 0; part < parts; ++part) add(whole, part * width, width, x, (part * tp + place_.tp_rank) * width);
}

// The columns from `column` on of x, which are those from first_column on of the whole.
void TensorRecorder::add(const core::ShardedTensor& whole, int64_t column, int64_t columns, const core::TensorView& x,
                         int64_t first_column) {
  const int64_t rows = x.dim(0) * x.dim(1), element = core::size_of(x.dtype());
  const int64_t source = x.size_bytes() / rows, target = columns * element;
  Recorded& made = recorded_.emplace_back(Recorded{whole, std::vector<std::byte>(static_cast<size_t>(rows * target))});
  made.meta.global_offset[2] = first_column;
  made.meta.local_shape = {x.dim(0), x.dim(1), columns};
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(made.data.data() + row * target, x.bytes() + row * source + column * element,
                static_cast<size_t>(target));
  }
}

void TensorRecorder::perturb(const core::TensorView& hidden) const {
  if (step_.perturbation == 0) return;
  const int64_t batch = hidden.dim(1), columns = hidden.dim(2);
  const auto scale = [&](auto* values) {
    const auto perturb_row = [&](int64_t row, int64_t position) {
      const core::Rng signs(static_cast<uint64_t>(microbatch_->samples[static_cast<size_t>(row % batch)]),
                            "perturbation");
      for (int64_t column = 0; column < columns; ++column) {
        auto& value = values[row * columns + column];
        const double sign = signs.below(static_cast<uint64_t>(position * columns + column), 2) == 0 ? -1 : 1;
        using T = std::remove_reference_t<decltype(value)>;
        value = static_cast<T>(
            static_cast<float>(static_cast<double>(kernels::to_float(value)) * (1 + sign * step_.perturbation)));
      }
    };
    const int64_t first = first_row(hidden);
    microbatch_->share.for_each_run(first, first + hidden.dim(0), [&](int64_t row, int64_t position, int64_t count) {
      for (int64_t i = 0; i < count * batch; ++i) perturb_row((row - first) * batch + i, position + i / batch);
    });
  };
  if (hidden.dtype() == core::DType::kBf16) return scale(reinterpret_cast<kernels::bf16*>(hidden.bytes()));
  if (hidden.dtype() == core::DType::kFp16) return scale(reinterpret_cast<kernels::fp16*>(hidden.bytes()));
  scale(hidden.data<float>());
}

}  // namespace ms::train
