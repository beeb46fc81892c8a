#include "convert/deepspeed/universal_target.h"

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "convert/deepspeed/files.h"
#include "convert/deepspeed/model_states.h"
#include "convert/huggingface_config.h"
#include "convert/megatron/progress.h"
#include "convert/name_map.h"
#include "convert/torch/archive_sink.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "core/io/file.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

constexpr const char* kVersion = "0.19.8";  // of DeepSpeed, whose layout this is
constexpr double kUniversalVersion = 0.4;   // as that has it
// Its engine fills as many groups of its optimizer as it finds here.
constexpr int kParamGroups = 16;

// A tensor of the family, as it is written.
struct Weight {
  std::string name;
  core::Dims shape;
  DType dtype = DType::kFp32;
  size_t storage = 0;  // in the model states, where it is not fp32
};

struct Settings {
  int64_t iteration = 0, samples = 0, step = 0;
  AdamSettings adam;
};

int64_t elements_of(const Weight& weight) { return core::num_elements(weight.shape); }

// {"cat_dim": 0, "param": tensor}
std::string state_pickle(const Weight& weight) {
  return make_pickle([&](PickleWriter& p) {
    p.dict([&] {
      p.text("cat_dim");
      p.integer(0);
      p.text("param");
      write_torch_tensor(p, {SafetensorsDType::kF32, 0, elements_of(weight), 0, weight.shape});
    });
  });
}

void write_step(PickleWriter& p) { write_torch_tensor(p, {SafetensorsDType::kF32, 0, 1, 0, {}}); }

std::string float_bytes(int64_t value) {
  const auto real = static_cast<float>(value);
  std::string bytes(sizeof real, '\0');
  std::memcpy(bytes.data(), &real, sizeof real);
  return bytes;
}

// betas and eps alone: what else a group says, the run that loads it says itself.
void write_groups(PickleWriter& p, const AdamSettings& adam) {
  p.text("param_groups");
  p.list([&] {
    for (int i = 0; i < kParamGroups; ++i) {
      p.dict([&] {
        p.text("betas");
        p.tuple([&] {
          p.real(adam.beta1);
          p.real(adam.beta2);
        });
        p.text("eps");
        p.real(adam.eps);
        p.text("params");
        p.list([] {});
      });
    }
  });
}

std::string optimizer_pickle(const AdamSettings& adam) {
  return make_pickle([&](PickleWriter& p) {
    p.dict([&] {
      p.text("ds_version");
      p.text(kVersion);
      write_groups(p, adam);
      p.text("optimizer_state_dict");  // where ZeRO 3 looks
      p.dict([&] {
        write_groups(p, adam);
        p.text("state");
        p.dict([&] {
          p.integer(0);
          p.dict([&] {
            p.text("step");
            write_step(p);
          });
        });
      });
    });
  });
}

std::string model_pickle(const std::vector<Weight>& weights, const Settings& settings, bool with_module) {
  return make_pickle([&](PickleWriter& p) {
    const auto none = [&](std::string_view key) {
      p.text(key);
      p.none();
    };
    const auto number = [&](std::string_view key, int64_t value) {
      p.text(key);
      p.integer(value);
    };
    p.dict([&] {
      p.text("module");
      p.call("collections", "OrderedDict", [] {});
      p.set_items([&] {
        for (const Weight& weight : weights) {
          if (!with_module || weight.dtype == DType::kFp32) continue;
          p.text(weight.name);
          write_torch_tensor(p, {from_core_dtype(weight.dtype), weight.storage, elements_of(weight), 0, weight.shape});
        }
      });
      p.text("param_shapes");
      p.list([&] {
        p.call("collections", "OrderedDict", [] {});
        p.set_items([&] {
          for (const Weight& weight : weights) {
            p.text(weight.name);
            p.call("torch", "Size", [&] { p.integers(weight.shape); });
          }
        });
      });
      p.text("buffer_names");
      p.list([] {});
      p.text("shared_params");
      p.dict([] {});
      for (const char* key : {"optimizer", "frozen_param_shapes", "frozen_param_fragments", "lr_scheduler",
                              "data_sampler", "random_ltd"}) {
        none(key);
      }
      number("skipped_steps", 0);
      number("global_steps", settings.iteration);
      number("global_samples", settings.samples);
      number("dp_world_size", 1);
      number("mp_world_size", 1);
      p.text("ds_config");
      p.dict([] {});
      p.text("ds_version");
      p.text(kVersion);
      p.text("universal_checkpoint_info");
      p.dict([&] {
        p.text("universal_checkpoint_version");
        p.real(kUniversalVersion);
      });
    });
  });
}

class UniversalPlanner {
 public:
  UniversalPlanner(const ckpt::Source& source, const UniversalTargetOptions& options,
                   std::vector<std::string>& decisions)
      : source_(source), options_(options), decisions_(decisions) {
    const nlohmann::json& common = source.info().common;
    settings_.iteration = source.info().iteration;
    settings_.step = common.is_object() ? common.value("step", settings_.iteration) : settings_.iteration;
    settings_.samples = common.is_object() ? common.value("consumed_train_samples", int64_t{0}) : 0;
    if (const auto adam = adam_settings(source.info())) {
      settings_.adam = *adam;
    } else if (options.with_optimizer) {
      say("Adam's betas and epsilon are not said by the source: ", settings_.adam.beta1, ", ", settings_.adam.beta2,
          " and ", settings_.adam.eps, " are written");
    }
    if (options.with_optimizer) {
      say("learning rate and weight decay stay those of the run that loads it; its schedule is not carried over");
    } else {
      say("without optimizer state: ZeRO 1 and 2 begin with moments of zero, ZeRO 3 loads it with "
          "load_optimizer_states=False");
    }
  }

  UniversalTarget plan(const std::function<DType(const std::string& key)>& dtype) {
    const Family& family = find_family(options_.config.at("model_type").get<std::string>());
    // The file of the weights themselves comes first.
    add_file("mp_rank_00_model_states.pt", {}, {});
    for_each_tensor(family, source_.info().model,
                    [&](const MappedTensor& mapped) { add_weight(mapped, dtype(mapped.key)); });
    const auto shared = std::make_shared<const std::vector<Weight>>(std::move(weights_));
    sink_.files[0].archives[0].pickle = [shared, settings = settings_] {
      return model_pickle(*shared, settings, true);
    };
    add_file("zero_pp_rank_0_mp_rank_00_model_states.pt", {},
             [shared, settings = settings_] { return model_pickle(*shared, settings, false); });
    add_file(cat(kUniversalZero, "/optimizer_state.pt"), {sizeof(float)},
             [adam = settings_.adam] { return optimizer_pickle(adam); }, {{0, float_bytes(settings_.step)}});
    const std::string tag = cat("global_step", settings_.iteration, "_universal");
    const fs::path root(options_.root);
    sink_.folder = root / tag;
    if (fs::exists(sink_.folder)) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat(sink_.folder.string(), " is there already; give another --save-dir"));
    }
    sink_.write_path = options_.write_path;
    sink_.committed = [root, tag, config = options_.config] {
      core::write_text_atomically((root / "config.json").string(), hf_json_text(config));
      core::write_text_atomically((root / kUniversalLatest).string(), tag);
    };
    return {std::move(shards_), make_archive_sink(std::move(sink_))};
  }

 private:
  void add_file(std::string path, std::vector<int64_t> storage_bytes, std::function<std::string()> pickle,
                std::vector<std::pair<size_t, std::string>> contents = {}) {
    sink_.files.push_back({std::move(path), {{0, std::move(storage_bytes), std::move(pickle), std::move(contents)}}});
  }

  void say(const auto&... parts) { decisions_.push_back(cat(parts...)); }

  void add_weight(const MappedTensor& mapped, DType dtype) {
    Weight weight{mapped.name,
                  {mapped.shape.begin(), mapped.shape.end()},
                  dtype,
                  sink_.files[0].archives[0].storage_bytes.size()};
    const int64_t elements = elements_of(weight);
    if (dtype != DType::kFp32) {
      sink_.files[0].archives[0].storage_bytes.push_back(elements * core::size_of(dtype));
      add_pieces(mapped, TensorRole::kParam, dtype, 0, weight.storage);
    }
    const bool has_master = source_.shards().find(mapped.key, TensorRole::kMaster).has_value();
    add_state(mapped, weight, "fp32", has_master && options_.with_optimizer ? TensorRole::kMaster : TensorRole::kParam);
    if (options_.with_optimizer) {
      for (const DeepSpeedMoment& moment : kDeepSpeedMoments) {
        if (!source_.shards().find(mapped.key, moment.role)) {
          throw Error(ErrorCode::kUnsupported,
                      cat("the optimizer state has no ", moment.name, " of ", mapped.key,
                          ", and DeepSpeed keeps Adam's of all parameters; give --drop-optimizer to leave it out"));
        }
        add_state(mapped, weight, moment.name, moment.role);
      }
      add_file(cat(kUniversalZero, "/", mapped.name, "/step.pt"), {sizeof(float)},
               [] { return make_pickle(write_step); }, {{0, float_bytes(settings_.step)}});
    }
    weights_.push_back(std::move(weight));
  }

  // A file of zero/NAME, filled from the source's tensor of this role.
  void add_state(const MappedTensor& mapped, const Weight& weight, const char* name, TensorRole role) {
    const auto file = static_cast<int32_t>(sink_.files.size());
    add_file(cat(kUniversalZero, "/", mapped.name, "/", name, ".pt"),
             {elements_of(weight) * core::size_of(DType::kFp32)}, [weight] { return state_pickle(weight); });
    add_pieces(mapped, role, DType::kFp32, file, 0);
  }

  void add_pieces(const MappedTensor& mapped, TensorRole role, DType dtype, int32_t file, size_t storage) {
    for (const TensorPiece& piece : mapped.pieces) {
      const int64_t step = mapped.transposed ? 1 : core::num_elements(piece.extent) / piece.extent[0];
      sink_.places.push_back({file, 0, static_cast<int32_t>(storage), piece.row * step * core::size_of(dtype),
                              mapped.transposed ? mapped.shape[1] : 0});
      shards_.push_back({mapped.key, role, dtype, mapped.global_shape, piece.offset, piece.extent});
    }
  }

  const ckpt::Source& source_;
  const UniversalTargetOptions& options_;
  std::vector<std::string>& decisions_;
  Settings settings_;
  std::vector<Weight> weights_;
  ckpt::ShardTable shards_;
  ArchiveSinkOptions sink_;
};

}  // namespace

UniversalTarget make_universal_target(const ckpt::Source& source, const UniversalTargetOptions& options,
                                      const std::function<DType(const std::string& key)>& dtype,
                                      std::vector<std::string>& decisions) {
  return UniversalPlanner(source, options, decisions).plan(dtype);
}

}  // namespace ms::convert
