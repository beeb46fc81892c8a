#include "convert/deepspeed/universal_target.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "convert/deepspeed/files.h"
#include "convert/deepspeed/model_states.h"
#include "convert/huggingface_config.h"
#include "convert/name_map.h"
#include "convert/optimizer_groups.h"
#include "convert/torch/archive_sink.h"
#include "convert/torch/plain_value.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

constexpr const char* kVersion = "0.19.8";  // the DeepSpeed version whose layout this is
constexpr double kUniversalVersion = 0.4;   // in that version
// The engine reads as many parameter groups as it finds here.
constexpr size_t kParamGroups = 16;

// A tensor of the family, as it is written.
struct Weight {
  std::string name;
  core::Dims shape;
  DType dtype = DType::kFp32;
  size_t storage = 0;  // in the model states, unless it is fp32
};

struct Settings {
  int64_t iteration = 0, samples = 0, step = 0;
  std::vector<NamedGroup> groups;  // empty without optimizer state
  nlohmann::json scheduler;        // state of a DeepSpeed or torch.optim scheduler; null: none
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

// Writes the members of a group; the loading run keeps its own value for any that the source lacks. params: ZeRO's
// number of the flat group.
void write_group(PickleWriter& p, const ckpt::OptimizerGroup& group, std::optional<int64_t> params) {
  const auto real = [&](const char* key, std::optional<double> value) {
    if (!value) return;
    p.text(key);
    p.real(*value);
  };
  p.dict([&] {
    real("lr", group.lr);
    real("initial_lr", group.initial_lr);
    real("weight_decay", group.weight_decay);
    if (group.beta1 && group.beta2) {
      p.text("betas");
      p.tuple([&] {
        p.real(*group.beta1);
        p.real(*group.beta2);
      });
    }
    real("eps", group.eps);
    for (const auto& [key, value] : group.options.items()) {
      p.text(key);
      write_plain_value(p, value);
    }
    p.text("params");
    p.list([&] {
      if (params) p.integer(*params);
    });
  });
}

// Returns the settings that are equal in all groups.
ckpt::OptimizerGroup shared_settings(const std::vector<NamedGroup>& groups) {
  ckpt::OptimizerGroup shared = groups.empty() ? ckpt::OptimizerGroup() : groups[0].settings;
  for (const NamedGroup& group : groups) {
    ckpt::visit_settings([&](const char*, auto member) {
      if (shared.*member != group.settings.*member) shared.*member = std::nullopt;
    });
    const nlohmann::json options = shared.options;
    for (const auto& [key, value] : options.items()) {
      if (!group.settings.options.contains(key) || group.settings.options[key] != value) shared.options.erase(key);
    }
  }
  return shared;
}

// ZeRO 1 and 2 assign groups to a run's groups by position. Groups beyond the source's get the settings that all source
// groups share.
void write_groups(PickleWriter& p, const std::vector<NamedGroup>& groups) {
  const ckpt::OptimizerGroup shared = shared_settings(groups);
  p.text("param_groups");
  p.list([&] {
    for (size_t i = 0; i < std::max<size_t>(kParamGroups, groups.size()); ++i) {
      const bool stated = i < groups.size();
      write_group(p, stated ? groups[i].settings : shared,
                  stated ? std::optional(static_cast<int64_t>(i)) : std::nullopt);
    }
  });
}

std::string optimizer_pickle(const std::vector<NamedGroup>& groups) {
  return make_pickle([&](PickleWriter& p) {
    p.dict([&] {
      p.text("ds_version");
      p.text(kVersion);
      write_groups(p, groups);
      p.text("optimizer_state_dict");  // ZeRO 3 reads it, and gives all groups of a run the members of the first
      p.dict([&] {
        p.text("param_groups");
        p.list([&] { write_group(p, shared_settings(groups), std::nullopt); });
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
      p.text("param_shapes");  // by group
      p.list([&] {
        std::map<std::string_view, size_t> group_of_name;
        for (size_t g = 0; g < settings.groups.size(); ++g) {
          for (const std::string& name : settings.groups[g].names) group_of_name.emplace(name, g);
        }
        for (size_t g = 0; g < std::max<size_t>(1, settings.groups.size()); ++g) {
          p.call("collections", "OrderedDict", [] {});
          p.set_items([&] {
            for (const Weight& weight : weights) {
              const auto found = group_of_name.find(weight.name);
              if ((found == group_of_name.end() ? 0 : found->second) != g) continue;
              p.text(weight.name);
              p.call("torch", "Size", [&] { p.integers(weight.shape); });
            }
          });
        }
      });
      p.text("buffer_names");
      p.list([] {});
      p.text("shared_params");
      p.dict([] {});
      for (const char* key :
           {"optimizer", "frozen_param_shapes", "frozen_param_fragments", "data_sampler", "random_ltd"}) {
        none(key);
      }
      p.text("lr_scheduler");
      write_plain_value(p, settings.scheduler);
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
    settings_.step = common.value("step", settings_.iteration);
    settings_.samples = common.value("consumed_train_samples", int64_t{0});
    if (options.with_optimizer) {
      plan_settings();
    } else {
      say("without optimizer state: ZeRO 1 and 2 start with zero moments, ZeRO 3 loads it with "
          "load_optimizer_states=False");
    }
  }

  UniversalTarget plan(const std::function<DType(const std::string& key)>& dtype) {
    const std::shared_ptr<const Family> held = family_of_result(options_.config, source_.info().model_extra);
    const Family& family = *held;
    // The file with the weights comes first.
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
             [groups = settings_.groups] { return optimizer_pickle(groups); }, {{0, float_bytes(settings_.step)}});
    sink_.root = options_.root;
    sink_.folder = cat("global_step", settings_.iteration, "_universal");
    if (const fs::path folder = sink_.root / sink_.folder; fs::exists(folder)) {
      throw Error(ErrorCode::kInvalidArgument, cat(folder.string(), " already exists; give another --save-dir"));
    }
    sink_.writing = options_.writing;
    sink_.pointers.emplace_back("config.json", hf_json_text(options_.config));
    sink_.pointers.emplace_back(kUniversalLatest, sink_.folder);
    return {std::move(shards_), make_archive_sink(std::move(sink_))};
  }

 private:
  void add_file(std::string path, std::vector<int64_t> storage_bytes, std::function<std::string()> pickle,
                std::vector<std::pair<size_t, std::string>> contents = {}) {
    sink_.files.push_back({std::move(path), {{0, std::move(storage_bytes), std::move(pickle), std::move(contents)}}});
  }

  void say(const auto&... parts) { decisions_.push_back(cat(parts...)); }

  void plan_settings() {
    std::vector<ckpt::OptimizerGroup> groups = ckpt::optimizer_groups(source_);
    if (groups.empty()) {
      say("the source has no optimizer settings: the run that loads it keeps its own");
    } else {
      settings_.groups =
          named_groups(groups, find_family(options_.config.at("model_type").get<std::string>()), source_.info().model);
    }
    if (settings_.groups.size() > 1) {
      say("ZeRO 1 and 2 set the run's groups from the written ones, by position: group 0 has ",
          settings_text(settings_.groups[0].settings), ", group 1 ", settings_text(settings_.groups[1].settings),
          "; ZeRO 3 has one value for all groups, so the run keeps its own settings where they differ");
    }
    const nlohmann::json scheduler = source_.info().common.value("lr_scheduler", nlohmann::json::object());
    settings_.scheduler = scheduler.is_object() ? scheduler.value("state", nlohmann::json()) : nlohmann::json();
    if (settings_.scheduler.is_null()) {
      say("there is no scheduler state: an engine with a scheduler must load with load_lr_scheduler_states=False");
    }
  }

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
          throw Error(
              ErrorCode::kUnsupported,
              cat("the optimizer state has no ", moment.name, " of ", mapped.key,
                  ", and DeepSpeed needs Adam's state of all parameters; give --drop-optimizer to leave it out"));
        }
        add_state(mapped, weight, moment.name, moment.role);
      }
      add_file(cat(kUniversalZero, "/", mapped.name, "/step.pt"), {sizeof(float)},
               [] { return make_pickle(write_step); }, {{0, float_bytes(settings_.step)}});
    }
    weights_.push_back(std::move(weight));
  }

  // Adds a file of zero/NAME, filled from the source's tensor of this role.
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
