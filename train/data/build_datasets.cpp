#include "train/data/build_datasets.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/error.h"
#include "core/log.h"
#include "train/data/blended_dataset.h"
#include "train/data/document_dataset.h"
#include "train/data/gpt_dataset.h"
#include "train/data/mock_documents.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;

constexpr std::array<const char*, 3> kSplitNames = {"train", "valid", "test"};

// The sequences of a share: [first, second).
std::pair<int64_t, int64_t> documents_of(int64_t num_sequences, std::pair<double, double> share) {
  const auto sequences = static_cast<double>(num_sequences);
  // Rounds half to even, as Python's round does.
  return {static_cast<int64_t>(std::nearbyint(share.first * sequences)),
          std::min(static_cast<int64_t>(std::nearbyint(share.second * sequences)), num_sequences)};
}

// As Megatron, which divides mock data evenly whatever --split says.
std::unique_ptr<SampleSource> mock_dataset(const std::shared_ptr<const MockDocuments>& documents, size_t which,
                                           GptIndexRequest request, SampleKind kind) {
  const SplitMatrix thirds = parse_split("1,1,1");
  std::tie(request.begin, request.end) = documents_of(MockDocuments::kNumDocuments, *thirds[which]);
  request.split_name = kSplitNames[which];
  if (kind == SampleKind::kDocument) return std::make_unique<DocumentDataset>(documents, request);
  const auto lengths = documents->lengths().subspan(static_cast<size_t>(request.begin),
                                                    static_cast<size_t>(request.end - request.begin));
  return std::make_unique<GptDataset>(documents, GptIndices::build(lengths, request), request.seq_length);
}

// Opens each prefix once and builds the requested parts of it.
class Builder {
 public:
  Builder(const DataConfig& config, int64_t seq_length, uint64_t seed, const std::function<bool()>& stopped,
          SampleKind kind)
      : config_(config), seq_length_(seq_length), seed_(seed), stopped_(stopped), kind_(kind) {}

  // Of a share of one prefix; num_samples 0: one epoch.
  std::unique_ptr<SampleSource> gpt(const std::string& prefix, size_t which, std::pair<double, double> share,
                                    int64_t num_samples) {
    const auto dataset = open(prefix);
    GptIndexRequest request;
    std::tie(request.begin, request.end) = documents_of(dataset->num_sequences(), share);
    request.num_samples = num_samples;
    request.seq_length = seq_length_;
    request.seed = seed_;
    request.split_name = kSplitNames[which];
    request.stopped = stopped_;
    if (request.begin >= request.end) {
      throw no_documents(*dataset, which);
    }
    try {
      if (kind_ == SampleKind::kDocument) return std::make_unique<DocumentDataset>(dataset, request);
      return std::make_unique<GptDataset>(dataset, indices(*dataset, request), seq_length_);
    } catch (const Error& e) {
      throw e.within(cat("data set ", prefix));
    }
  }

  // The whole blend for one split.
  std::unique_ptr<SampleSource> blend(const Blend& blend, size_t which, std::pair<double, double> share,
                                      int64_t num_samples) {
    if (blend.weights.empty() && blend.prefixes.size() == 1) {
      return gpt(blend.prefixes[0], which, share, num_samples);
    }
    std::vector<std::unique_ptr<SampleSource>> parts;
    std::vector<double> weights = normalize_weights(blend.weights);
    int64_t size = 0;
    for (size_t i = 0; i < blend.prefixes.size(); ++i) {
      int64_t part_samples = 0;
      if (!weights.empty()) {
        // Half a percent more than its share, as Megatron requests, so that no data set runs out.
        part_samples = static_cast<int64_t>(std::ceil(static_cast<double>(num_samples) * weights[i] * 1.005));
        size += part_samples;
      }
      parts.push_back(gpt(blend.prefixes[i], which, share, part_samples));
    }
    if (weights.empty()) {
      int64_t total = 0;
      for (const auto& part : parts) {
        weights.push_back(static_cast<double>(part->size()));
        total += part->size();
      }
      if (total < num_samples) {
        throw Error(ErrorCode::kInvalidArgument,
                    cat("data sets without weights are read once: ", blend.prefixes, " hold ", total, " samples, but ",
                        num_samples, " ", kSplitNames[which], " samples are needed. Give weights to repeat them"));
      }
      size = num_samples;
    }
    return std::make_unique<BlendedDataset>(std::move(parts), weights, size, stopped_);
  }

  // True if each of the blend's data sets has documents in this share.
  bool has_documents(const Blend& blend, std::pair<double, double> share) {
    return std::all_of(blend.prefixes.begin(), blend.prefixes.end(), [&](const std::string& prefix) {
      const auto [begin, end] = documents_of(open(prefix)->num_sequences(), share);
      return begin < end;
    });
  }

 private:
  Error no_documents(const IndexedDataset& dataset, size_t which) const {
    const int64_t documents = dataset.num_sequences();
    const bool evaluated = which > 0;
    return {ErrorCode::kInvalidArgument,
            cat("data set ", dataset.prefix(), " has ", documents, documents == 1 ? " document" : " documents",
                ", of which --split ", config_.split.empty() ? DataConfig::kDefaultSplit : config_.split,
                " leaves none for ", kSplitNames[which],
                documents == 1 ? ": a document is not divided. Give" : ". Give a larger share, or",
                " data of its own with --", kSplitNames[which], "-data-path",
                evaluated ? ", or --eval-iters 0 for no evaluation" : "")};
  }

  std::shared_ptr<const IndexedDataset> open(const std::string& prefix) {
    auto& entry = open_[prefix];
    if (!entry) entry = std::make_shared<const IndexedDataset>(prefix, config_.mmap_bin_files);
    return entry;
  }

  GptIndices indices(const IndexedDataset& dataset, const GptIndexRequest& request) const {
    if (!config_.data_cache_path.empty()) {
      return GptIndices::build_or_load(dataset, request, config_.data_cache_path);
    }
    try {
      return GptIndices::build_or_load(dataset, request, dataset.prefix() + "/cache/GPTDataset_indices");
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kIo || (stopped_ && stopped_())) throw;
      // Data sets are often on read-only storage. The indices are then built in memory; they are the same in every
      // process.
      core::log_warning("data.cache",
                        cat("cannot write a cache beside the data set, so the index is built in memory: ", e.what()));
      return GptIndices::build(dataset.sequence_lengths(request.begin, request.end), request);
    }
  }

  const DataConfig& config_;
  int64_t seq_length_;
  uint64_t seed_;
  const std::function<bool()>& stopped_;
  SampleKind kind_;
  std::map<std::string, std::shared_ptr<const IndexedDataset>> open_;
};

}  // namespace

TrainValidTest build_datasets(const DataConfig& config, int64_t seq_length, uint64_t seed, int64_t train_samples,
                              int64_t valid_samples, int64_t test_samples, const std::function<bool()>& stopped,
                              const Tokenizer* tokenizer, SampleKind kind) {
  config.validate();
  Builder builder(config, seq_length, seed, stopped, kind);
  TrainValidTest result;
  const std::array<int64_t, 3> samples = {train_samples, valid_samples, test_samples};
  const std::array<std::unique_ptr<SampleSource>*, 3> out = {&result.train, &result.valid, &result.test};
  if (config.mock_data) {
    MS_CHECK(tokenizer != nullptr, "--mock-data without a tokenizer");
    if (!tokenizer->eod()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--mock-data: its documents end with the end-of-document token, but the tokenizer names none. Give "
                  "another tokenizer, or --tokenizer-type NullTokenizer --vocab-size N");
    }
    const auto documents = std::make_shared<const MockDocuments>(tokenizer->vocab_size(), *tokenizer->eod());
    for (size_t i = 0; i < 3; ++i) {
      if (samples[i] <= 0) continue;
      GptIndexRequest request;
      request.num_samples = samples[i];
      request.seq_length = seq_length;
      request.seed = seed;
      request.stopped = stopped;
      *out[i] = mock_dataset(documents, i, request, kind);
    }
    return result;
  }
  const DataLists lists = list_data_sets(config);
  const SplitMatrix matrix = parse_split(config.split.empty() ? DataConfig::kDefaultSplit : config.split);
  for (size_t i = 0; i < 3; ++i) {
    if (!lists.data_path.empty()) {
      if (samples[i] <= 0 || !matrix[i]) continue;
      const Blend blend = parse_blend(lists.data_path, "--data-path");
      // The splits of common scripts, such as 949,50,1, leave the test set of a small data set without a document.
      if (i == 2 && !builder.has_documents(blend, *matrix[i])) {
        core::log_warning("train.data", cat("no test set: the third share of --split ",
                                            config.split.empty() ? DataConfig::kDefaultSplit : config.split,
                                            " is less than a document of each data set"));
        continue;
      }
      *out[i] = builder.blend(blend, i, *matrix[i], samples[i]);
    } else if (!lists.per_split[i].empty()) {
      const Blend blend = parse_blend(lists.per_split[i], cat("--", kSplitNames[i], "-data-path"));
      for (const std::string& prefix : blend.prefixes) check_data_set_exists(prefix);  // checked even if it is not read
      if (samples[i] <= 0) continue;
      // A single prefix is not blended, whether or not it has a weight.
      *out[i] = blend.prefixes.size() == 1 ? builder.gpt(blend.prefixes[0], i, {0.0, 1.0}, samples[i])
                                           : builder.blend(blend, i, {0.0, 1.0}, samples[i]);
    }
  }
  return result;
}

}  // namespace ms::train
