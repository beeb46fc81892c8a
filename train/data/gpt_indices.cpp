#include <unistd.h>

#include <new>

#include "core/error.h"
#include "train/data/detail/numpy_random.h"
#include "train/data/gpt_dataset.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

struct Epochs {
  int64_t count = 1;
  bool separate_last = false;       // shuffle the last epoch separately, because little of it is used
  int64_t samples_before_last = 0;  // with separate_last
  int64_t num_samples = 0;          // in all epochs
};

// 64-bit product that must not overflow; `what` names the flags in the error.
int64_t multiply(int64_t a, int64_t b, const char* what) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product == INT64_MAX) {
    throw Error(ErrorCode::kInvalidArgument, cat(what, ": ", a, " x ", b, " does not fit 64 bits"));
  }
  return product;
}

Epochs plan_epochs(int64_t tokens, const GptIndexRequest& request) {
  const int64_t seq = request.seq_length;
  Epochs epochs;
  if (request.num_samples > 0) {
    const int64_t wanted = multiply(request.num_samples, seq, "samples x --seq-length") + 1;
    epochs.count = wanted / tokens + (wanted % tokens != 0 ? 1 : 0);
  }
  const int64_t total = multiply(epochs.count, tokens, "epochs x tokens");
  epochs.num_samples = (total - 1) / seq;
  if (epochs.count > 1) {
    epochs.samples_before_last = (total - tokens - 1) / seq;
    const int64_t per_epoch = (tokens - 1) / seq;
    const int64_t from_last = request.num_samples - epochs.samples_before_last;
    epochs.separate_last = from_last < static_cast<int64_t>(0.80 * static_cast<double>(per_epoch));
  }
  return epochs;
}

// Appends every document of the range once per epoch, shuffled together.
void append_documents(const GptIndexRequest& request, int64_t epochs, detail::NumpyRandomState& random,
                      std::vector<int64_t>& out) {
  const size_t first = out.size();
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t d = request.begin; d < request.end; ++d) out.push_back(d);
  }
  random.shuffle(std::span(out).subspan(first), detail::Patience(request.stopped));
}

// Where each sample begins: (position in documents, offset). A sample takes seq_length + 1 tokens; the next one begins
// at its last token, which the first uses as a label only.
std::vector<int64_t> cut_samples(std::span<const int32_t> lengths, const std::vector<int64_t>& documents,
                                 int64_t num_samples, const GptIndexRequest& request) {
  detail::Patience patience(request.stopped);
  std::vector<int64_t> out;
  out.reserve(2 * static_cast<size_t>(num_samples + 1));
  size_t position = 0;
  int64_t offset = 0;
  out.insert(out.end(), {0, 0});
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    patience.step();
    for (int64_t remaining = request.seq_length + 1;;) {
      const int64_t available = lengths[static_cast<size_t>(documents[position] - request.begin)] - offset;
      if (remaining <= available) {
        offset += remaining - 1;
        break;
      }
      remaining -= available;
      ++position;
      offset = 0;
      MS_CHECK(position < documents.size(), "sample ", sample, " of ", num_samples, " runs past the documents");
    }
    out.insert(out.end(), {static_cast<int64_t>(position), offset});
  }
  return out;
}

void append_range(int64_t begin, int64_t end, const GptIndexRequest& request, detail::NumpyRandomState& random,
                  std::vector<int64_t>& out) {
  const size_t first = out.size();
  for (int64_t i = begin; i < end; ++i) out.push_back(i);
  random.shuffle(std::span(out).subspan(first), detail::Patience(request.stopped));
}

struct Vectors {
  std::vector<int64_t> document, sample, shuffle;
};

}  // namespace

GptIndices GptIndices::build(std::span<const int32_t> lengths, const GptIndexRequest& request) {
  MS_CHECK(request.begin >= 0 && request.end >= request.begin &&
               static_cast<int64_t>(lengths.size()) == request.end - request.begin,
           "range ", request.begin, " to ", request.end, " with ", lengths.size(), " lengths");
  if (request.seq_length < 1 || request.num_samples < 0) {
    throw Error(ErrorCode::kInvalidArgument, cat("--seq-length ", request.seq_length, ", samples ", request.num_samples,
                                                 ": expected at least 1 and 0"));
  }
  detail::NumpyRandomState random(request.seed);
  int64_t tokens = 0;
  for (const int32_t length : lengths) tokens += length;
  if (tokens == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("the ", request.split_name, " split, documents ", request.begin, " to ", request.end,
                    ", holds no tokens. Give it a larger share with --split, or more data"));
  }
  const Epochs epochs = plan_epochs(tokens, request);
  if (epochs.num_samples == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("the ", request.split_name, " split holds ", tokens, " tokens; one sample of --seq-length ",
                    request.seq_length, " needs ", request.seq_length + 1));
  }
  const auto out_of_memory = [&](double bytes) {
    return Error(ErrorCode::kOutOfMemory,
                 cat("the index of ", epochs.num_samples, " samples over ", epochs.count, " epochs of ", lengths.size(),
                     " documents (", request.split_name, ") takes ", bytes / 1e9, " GB of memory"));
  };
  // Checked before allocating: on a system that overcommits memory, the kernel would kill the job later without a
  // message.
  const double bytes = 8.0 * (static_cast<double>(epochs.count) * static_cast<double>(lengths.size()) +
                              3.0 * static_cast<double>(epochs.num_samples));
  if (bytes > static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE))) {
    throw out_of_memory(bytes);
  }
  try {
    auto vectors = std::make_shared<Vectors>();
    vectors->document.reserve(static_cast<size_t>(epochs.count) * lengths.size());
    if (epochs.separate_last) {
      append_documents(request, epochs.count - 1, random, vectors->document);
      append_documents(request, 1, random, vectors->document);
    } else {
      append_documents(request, epochs.count, random, vectors->document);
    }
    vectors->sample = cut_samples(lengths, vectors->document, epochs.num_samples, request);
    vectors->shuffle.reserve(static_cast<size_t>(epochs.num_samples));
    const int64_t together = epochs.separate_last ? epochs.samples_before_last : epochs.num_samples;
    append_range(0, together, request, random, vectors->shuffle);
    append_range(together, epochs.num_samples, request, random, vectors->shuffle);

    GptIndices indices;
    indices.document_index_ = vectors->document;
    indices.sample_index_ = vectors->sample;
    indices.shuffle_index_ = vectors->shuffle;
    indices.storage_ = std::move(vectors);
    return indices;
  } catch (const std::bad_alloc&) {
    throw out_of_memory(bytes);
  }
}

}  // namespace ms::train
