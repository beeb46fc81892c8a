#include "train/loop/trainer.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "ckpt/commit.h"
#include "ckpt/writer.h"
#include "core/comm/agree.h"
#include "core/comm/flight_recorder.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/layout/formulas/flops.h"
#include "core/layout/model_layout.h"
#include "core/layout/process_group_table.h"
#include "core/log.h"
#include "core/process_memory.h"
#include "core/signals.h"
#include "core/trace/span.h"
#include "train/data/tokenizer.h"
#include "train/loop/automated_pipeline.h"
#include "train/loop/checkpoint_manager.h"
#include "train/loop/evaluation.h"
#include "train/loop/expert_bias.h"
#include "train/loop/expert_placement.h"
#include "train/loop/flag_differences.h"
#include "train/loop/flight_recording.h"
#include "train/loop/generate.h"
#include "train/loop/group_counters.h"
#include "train/loop/pretraining.h"
#include "train/loop/profile_window.h"
#include "train/loop/reporter.h"
#include "train/loop/run_inputs.h"
#include "train/loop/same_model.h"
#include "train/loop/step.h"
#include "train/loop/step_agreement.h"
#include "train/loop/step_guard.h"
#include "train/loop/step_timers.h"
#include "train/loop/swap.h"
#include "train/loop/tensor_dump.h"
#include "train/loop/weight_hash.h"
#include "train/ops/linear.h"
#include "train/optim/optimizer.h"
#include "train/optim/param_scheduler.h"
#include "train/parallel/process_groups.h"
#include "train/saved_mask.h"
#include "train/state.h"

namespace ms::train {
using core::cat;
using core::trace::Category;

struct Trainer::Impl {
  Impl(TrainerConfig given, core::Endpoint& end, core::ThreadPool& threads, core::trace::Recorder* trace,
       TrainerServices given_services)
      : config(std::move(given)),
        endpoint(end),
        recorder(trace),
        services(std::move(given_services)),
        ops{threads, arena, trace},
        reporter(config, ops, arena),
        agreement(config) {
    core::Communicator start_group = open_group(endpoint, layout::Group::kStart);
    // Else ranks could see different newest checkpoints, and none the last snapshot of a trainer that was killed.
    core::collectively(start_group, "start", [&] {
      if (endpoint.rank() == 0 && !config.checkpoint.load.empty()) ckpt::wait_for_writer(config.checkpoint.load);
    });
    core::collectively(start_group, "start", [&] {
      begin("config");
      inputs = open_inputs(config, endpoint.size(), services.open_source);
    });
    require_same_flags(start_group, fields().dump(),
                       {cluster_fingerprint(config.parallel), grid_fingerprint(config.training)});
    open_flight_recorder(config.logger, start_group);
    groups = open_process_groups(endpoint, config, arena);
    if (chooses_pipeline(config) && trains(config)) {
      const bool continues = inputs.source != nullptr && !config.checkpoint.finetune;
      pipeline_choice = choose_pipeline(
          config, *groups, threads, continues ? saved_pipeline_choice(inputs.source->info().common) : nlohmann::json());
    }
    ops.deterministic = config.training.deterministic;
    state = std::make_unique<RankState>(RankState{config, *groups, ops});
    checkpoint_manager =
        std::make_unique<CheckpointManager>(config.checkpoint, groups->grid, endpoint.rank(),
                                            CheckpointManager::Services{.arena = &arena,
                                                                        .pool = &ops.pool,
                                                                        .recorder = recorder,
                                                                        .writer_command = services.writer_command,
                                                                        .stopped = stopped});
    if (!go_through("build model", [&] { build(); }) || !find_local() ||
        !go_through("load checkpoint", [&] { load(); }) || !build_data()) {
      return;
    }
    if (config.optimizer.reuse_fp32_param) optimizer->share_weights();
    if (!config.checkpoint.save.empty() && trains(config)) checkpoint_manager->open_persistent(groups->checkpoint);
    if (!config.logger.save_tensors_dir.empty() && trains(config)) {
      tensor_dump = std::make_unique<TensorDump>(
          *state, *parameters, *optimizer, TensorDump::Run{.completed = progress.iteration, .config = stored_config()});
      state->tensors = &tensor_dump->recorder();
    }
    core::collectively(groups->world, "set aside memory for snapshots", [&] {
      checkpoint_manager->reserve([&](RankPart part) { return shards_to_save(*state, *parameters, *optimizer, part); });
    });
    if (trains(config)) reporter.find_roofline(groups->world);
    reporter.open_files(groups->world);
    endpoint.use_threads(&threads);
  }
  ~Impl() { endpoint.use_threads(nullptr); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  static constexpr int64_t kMaxStepsReserved = 100'000;  // of RunSummary::steps: 20 MB, which get pages as they fill

  core::ConfigFields fields() { return config.fields(); }
  // As --config takes it.
  nlohmann::json stored_config() {
    nlohmann::json stored = fields().dump();
    if (inputs.given_vocab_size > 0) stored["model"]["vocab_size"] = inputs.given_vocab_size;
    return stored;
  }

  // phase: a literal.
  void begin(std::string_view phase) const {
    if (core::FlightRecorder* const flight = endpoint.flight()) flight->set_phase({phase.data()});
    if (services.at_phase) services.at_phase(phase);
  }

  // For long local work, which throws when it is true.
  static bool stopped() { return core::termination_signal() != 0; }

  // An agreed phase before the first step. False if a signal has come to any rank: the run ends here, whether it has
  // broken the phase off or not.
  bool go_through(std::string_view phase, const std::function<void()>& body) {
    return go_through([&] { core::collectively(groups->world, phase, body); });
  }
  // The same of several.
  bool go_through(const std::function<void()>& phases) {
    try {
      phases();
      agree();
    } catch (const core::AgreedError& e) {
      agree();
      if (agreement.stop_signal() == 0) throw;
      core::log_info("train.exit", e.what());
    }
    return agreement.stop_signal() == 0;
  }
  StepFlops agree(const StepFlops& flops = {}) {
    const core::FlightPhase phase(endpoint.flight(), "agreement");
    const bool failed = swap != nullptr && swap->tier().failed();
    const StepFlops all = agreement.exchange(groups->world, *checkpoint_manager, flops, failed);
    if (agreement.step_failed()) core::collectively(groups->world, "swap", [&] { swap->check(); });
    return all;
  }

  // Whether no rank has a signal to end, after a piece of work that is no step.
  bool goes_on() {
    agree();
    return agreement.stop_signal() == 0;
  }

  void build() {
    begin("build");
    parameters = std::make_unique<ParameterStore>(*state);
    optimizer = std::make_unique<Optimizer>(*state, *parameters);
    stage = std::make_unique<GptStage>(*state, *parameters);
    if (trains(config)) swap = RunSwap::open(*state);
    if (swap != nullptr) swap->serve(*stage), swap->serve(*optimizer);
    optimizer->follow(*stage);
    placement = ExpertPlacement::open(*state, *parameters, *optimizer);
    runner = std::make_unique<StepRunner>(*state, *stage, &timers);
    core::log_info("train.model",
                   cat("parameters: ", config.model.num_parameters(groups->grid.tp), " | ranks: ", endpoint.size(),
                       " = ", layout::sizes_text(groups->grid), " | threads per rank: ", ops.pool.num_threads(),
                       " | dtype: ", core::dtype_name(config.params_dtype())));
    log_frozen(config.optimizer, config.model, groups->grid.tp);
    core::log_debug("train.model", ops::explain_gemm(ops, config.params_dtype()));
    flops_per_sample = static_cast<double>(layout::model_flops_per_sample(
        config.model, config.training.seq_length, groups->grid.tp, sample_mask(config.training)));
  }

  // Opens the local tier; what it has that is newer than the persistent checkpoint takes its place. False: as
  // go_through.
  bool find_local() {
    const CheckpointConfig& c = config.checkpoint;
    if (!c.replication && c.replication_jump != 0) {
      core::log_warning("train.config", "--replication-jump has no effect without --replication");
    }
    if (!has_local_checkpoints(config)) return true;
    return go_through([&] {
      local_group.emplace(open_group(endpoint, layout::Group::kLocalCheckpoint));
      ckpt::LocalTier& local = checkpoint_manager->open_local(*local_group);
      if (c.load.empty() || c.ckpt_step != 0 || c.finetune || !c.load_optim) return;
      auto found = local.find(layout::layout_to_json(state->layout()), all_shards(*state, *parameters, *optimizer),
                              inputs.source != nullptr ? inputs.source->info().iteration : 0);
      if (!found) return;
      core::collectively(groups->world, "load local checkpoint",
                         [&] { check_same_model(found->source->info().model, config.model); });
      loaded_part = RankPart::kAll;
      loaded_from = cat(c.non_persistent_local_ckpt_dir, " (local: ", found->fetched, " of ", endpoint.size(),
                        " parts from other ranks)");
      inputs.source = std::move(found->source);
    });
  }

  void load() {
    begin("load");
    if (inputs.source == nullptr && !inputs.missing.empty()) {
      if (config.checkpoint.exit_on_missing_checkpoint) throw core::Error(core::ErrorCode::kNotFound, inputs.missing);
      core::log_warning("train.load", cat(inputs.missing,
                                          "; starting from scratch (--exit-on-missing-checkpoint makes it an error)"));
    }
    schedule = param_schedule(config);
    guard = std::make_unique<StepGuard>(config, groups->world);
    batch_sizes = config.batch_sizes();
    if (inputs.source == nullptr) {
      if (trains(config)) config.validate_batch_sizes(endpoint.size(), 0);
      parameters->initialize(static_cast<uint64_t>(config.rng.seed),
                             [&](const Parameter& parameter, const core::TensorView& values) {
                               optimizer->set_master(parameter, values);
                               if (stopped()) throw core::Error(core::ErrorCode::kIo, "interrupted");
                             });
      return optimizer->release_state(/*is_changed=*/true);
    }
    const bool with_optimizer = trains(config) && config.checkpoint.load_optim && !config.checkpoint.finetune &&
                                inputs.source->info().iteration > 0;
    if (placement && with_optimizer) placement->restore(inputs.source->info().common);
    const Progress loaded =
        load_state(*state, *parameters, *optimizer, *inputs.source, loaded_part, with_optimizer, stopped);
    if (!config.checkpoint.finetune) progress = loaded;
    if (trains(config)) config.validate_batch_sizes(endpoint.size(), progress.consumed_train_samples);
    if (with_optimizer) restore_optimization(inputs.source->info().common);
    model_extra = inputs.source->info().model_extra;
    if (!config.checkpoint.finetune && config.generate.generate.empty())
      warn_of_other_mask(inputs.source->info(), config);
    core::log_info("train.load", cat("loaded iteration ", loaded.iteration, " from ", loaded_from,
                                     with_optimizer ? ", with optimizer state" : ", weights only"));
    inputs.source.reset();
  }

  // What steers the optimizer from outside its tensors.
  void restore_optimization(const nlohmann::json& common) {
    const auto saved = [&](const char* key) {
      return common.is_object() ? common.value(key, nlohmann::json()) : nlohmann::json();
    };
    schedule = continue_schedule(schedule, saved("opt_param_scheduler"), config.scheduler.override_opt_param_scheduler,
                                 config.scheduler.use_checkpoint_opt_param_scheduler);
    guard->restore(saved("grad_scaler"), saved("spike_guard"));
  }

  // False: as go_through.
  bool build_data() {
    if (!config.generate.generate.empty()) return true;
    objective = std::make_unique<Pretraining>(config, *groups, *inputs.tokenizer);
    // Rank 0 first: it builds the cached indices that the others read.
    for (const bool first : {true, false}) {
      const bool turn = first == (endpoint.rank() == 0);
      if (!go_through("data", [&] {
            if (!turn) return;
            begin("data");
            objective->build_data(stopped);
          })) {
        return false;
      }
    }
    return true;
  }

  const std::vector<Microbatch>& read_batch(Pretraining::Set set, int64_t consumed, int64_t batch_size) {
    core::trace::Span span(recorder, Category::kUserAnnotation, "data");
    return objective->read_batch(set, consumed, batch_size);
  }

  const std::vector<Microbatch>& read_training_batch(int64_t batch_size) {
    const TimedPart timed(timers, StepTimers::kBatchGenerator);
    return read_batch(Pretraining::Set::kTraining, progress.consumed_train_samples, batch_size);
  }

  // The mean loss of a set, in the log and the metrics too. nullopt: a signal has come, and there is no time for the
  // rest.
  std::optional<double> evaluate(Pretraining::Set set) {
    core::trace::Span span(recorder, Category::kUserAnnotation, "evaluation");
    const bool test = set == Pretraining::Set::kTest;
    const auto read = [&](int64_t first, int64_t size) -> const std::vector<Microbatch>& {
      return read_batch(set, first, size);
    };
    const int64_t first = test ? 0 : config.first_valid_sample(progress.iteration);
    const std::optional<double> loss = evaluation_loss(config, *runner, first, read, [&] { return goes_on(); });
    if (!loss) return std::nullopt;
    reporter.evaluation(test ? "test" : "validation", *loss, progress.iteration, progress.consumed_train_samples);
    require_finite_result(config, groups->world, *loss, progress.iteration);
    return loss;
  }

  // Forward, backward and, unless its numbers speak against it, the update; fills what they say into m.
  void compute_step(StepMetrics& m) {
    parameters->zero_grads();
    if (tensor_dump) {
      tensor_dump->begin_step({.iteration = m.iteration,
                               .first_sample = progress.consumed_train_samples,
                               .samples = m.global_batch_size,
                               .loss_scale = m.loss_scale});
    }
    begin("forward");
    BatchResult result = [&] {
      const TimedPart timed(timers, StepTimers::kForwardBackward);
      return runner->train(read_training_batch(m.global_batch_size), m.loss_scale, progress.iteration);
    }();
    begin("optimizer");
    const double grad_scale = result.grad_scale * config.gradient_factor(groups->grid.dp);
    {
      const TimedPart timed(timers, StepTimers::kAllGradsSync);
      m.grad_norm = optimizer->finish_gradients(grad_scale);
      runner->await_loss(result);
    }
    m.loss = result.loss, m.mtp_losses = result.mtp_losses, m.experts = result.experts;
    if (tensor_dump) tensor_dump->end_step(m.grad_norm);
    if (!guard->accepts(m)) return;
    checkpoint_manager->before_update();
    if (config.logger.log_num_zeros_in_grad) m.num_zeros = optimizer->num_zeros();
    const TimedPart timed(timers, StepTimers::kOptimizer);
    optimizer->update({.lr = m.learning_rate,
                       .weight_decay = weight_decay(schedule, progress.scheduler_samples),
                       .decoupled_lr = m.decoupled_learning_rate,
                       .step = progress.optimizer_steps + 1,
                       .grad_scale = grad_scale,
                       .grad_norm = m.grad_norm});
    update_expert_biases(*parameters, result.experts, config.training.moe_router_bias_update_rate);
    ++progress.optimizer_steps, progress.scheduler_samples += m.global_batch_size;
  }

  StepMetrics train_step() {
    const int64_t start_ns = core::trace::now_ns();
    reset_peaks(arena, endpoint.arena(), swap != nullptr ? &swap->tier() : nullptr);
    const int64_t flops_before = ops.flops;
    reset_counters(*groups);
    const StepLabel label(progress.iteration);
    core::trace::Span span(recorder, Category::kUserAnnotation, label.text());
    const std::vector<int64_t>& unwanted = config.training.iterations_to_skip;
    StepMetrics m;
    m.iteration = progress.iteration + 1;
    if (core::FlightRecorder* const flight = endpoint.flight()) flight->set_iteration(m.iteration);
    m.train_iters = config.training.train_iters;
    m.global_batch_size = batch_sizes.at(progress.consumed_train_samples);
    reporter.batch_size(m);
    m.learning_rate = learning_rate(schedule, progress.scheduler_samples);
    if (const auto decoupled = decoupled_schedule(schedule)) {
      m.decoupled_learning_rate = learning_rate(*decoupled, progress.scheduler_samples);
    }
    m.loss_scale = guard->loss_scale();
    if (std::find(unwanted.begin(), unwanted.end(), m.iteration) != unwanted.end()) {
      m.skipped = m.passed_over = true;
      progress.skipped_train_samples += m.global_batch_size;
    } else {
      compute_step(m);
    }
    if (config.logger.log_params_norm) m.params_norm = optimizer->params_norm();
    timers.end_step();
    progress.iteration = m.iteration;
    progress.consumed_train_samples += m.global_batch_size;
    m.consumed_train_samples = progress.consumed_train_samples;

    m.executed_flops = ops.flops - flops_before;
    communication = read_counters(*groups);
    if (recorder != nullptr) record_counters(communication, *recorder);
    const StepFlops flops = agree(
        {.executed = static_cast<double>(m.executed_flops), .hidden = m.passed_over ? 0 : objective->hidden_flops()});
    m.seconds = static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9;
    if (!m.passed_over) objective->describe(m);
    const double per_tflop = 1e-12 / (endpoint.size() * m.seconds);
    m.hardware_tflops_per_rank = flops.executed * per_tflop;
    if (!m.passed_over) {
      const double whole = flops_per_sample * static_cast<double>(m.global_batch_size);
      m.tflops_per_rank = (whole - flops.hidden) * per_tflop;
    }
    reporter.rate(m);
    take_peaks(m, arena, endpoint.arena());
    if (swap != nullptr) m.tier = swap->tier().take_use();
    return m;
  }

  ckpt::SaveRequest save_request(RankPart part) {
    ckpt::SaveRequest request;
    core::collectively(groups->world, "save", [&] {
      begin("save");
      nlohmann::json common = {{"config", stored_config()},
                               {"opt_param_scheduler", schedule_to_json(schedule)},
                               {"grad_scaler", guard->scaler_state()},
                               {"spike_guard", guard->spike_state()}};
      if (!pipeline_choice.is_null()) common[kPipelineChoice] = pipeline_choice;
      if (places_experts(config)) common[kExpertPlacement] = placement->saved();
      request = make_save_request(*state, *parameters, *optimizer, progress, model_extra, std::move(common), part);
    });
    return request;
  }

  RunSummary run() {
    RunSummary summary;
    summary.signal = agreement.stop_signal();
    if (summary.signal != 0) return summary;  // it came before the first step
    if (!config.generate.generate.empty()) {
      summary.generated =
          generate(*state, *stage, *inputs.tokenizer, config.generate.generate, config.generate.num_tokens_to_generate,
                   config.generate.temperature, static_cast<uint64_t>(config.rng.seed), [&] { return goes_on(); });
      summary.signal = agreement.stop_signal();
      return summary;
    }
    const bool evaluates = objective->has_validation(), tests = objective->has_test();
    if (config.training.skip_train) {
      if (evaluates) summary.validation_loss = evaluate(Pretraining::Set::kValidation).value_or(-1);
      if (tests && agreement.stop_signal() == 0) summary.test_loss = evaluate(Pretraining::Set::kTest).value_or(-1);
      reporter.flush();
      summary.signal = agreement.stop_signal();
      return summary;
    }
    const auto request = [&](RankPart part) { return save_request(part); };
    ProfileWindow window(config.profiling, groups->world, arena, recorder, services.convert_trace);
    // Else the list's growth would be allocations of later steps.
    summary.steps.reserve(static_cast<size_t>(
        std::clamp<int64_t>(config.training.train_iters - progress.iteration, 0, kMaxStepsReserved)));
    ReplicaCheck replicas(config.training, *parameters, *groups, *optimizer);
    replicas.at(progress.iteration);
    while (progress.iteration < config.training.train_iters && summary.exit_reason.empty()) {
      window.before_step(progress.iteration);
      StepMetrics m = train_step();
      summary.steps.push_back(m);
      summary.communication = communication;
      reporter.step(groups->world, m, communication, progress.skipped_train_samples, timers);
      if (placement) placement->after_step(m, *checkpoint_manager);
      replicas.at(progress.iteration);
      checkpoint_manager->finish_failed();
      checkpoint_manager->save_if_due(progress.iteration, request);
      optimizer->release_state(/*is_changed=*/false);
      if (evaluates && agreement.stop_signal() == 0 &&
          (progress.iteration % config.training.eval_interval == 0 || progress.iteration == m.train_iters)) {
        if (const auto loss = evaluate(Pretraining::Set::kValidation)) summary.validation_loss = *loss;
      }
      if (agreement.takes_trace_request()) window.toggle();
      window.after_step(progress.iteration);
      if (progress.iteration < m.train_iters || agreement.stop_signal() != 0)
        summary.exit_reason = agreement.exit_reason(progress.iteration);
    }
    core::log_progress("");
    if (tensor_dump) tensor_dump->close(progress.iteration);
    window.close(progress.iteration);
    reporter.flush();
    if (!summary.exit_reason.empty()) {
      core::log_info("train.exit", cat("exiting at iteration ", progress.iteration, ": ", summary.exit_reason));
    }
    checkpoint_manager->close(agreement.saves_at_exit() && !summary.steps.empty(), progress.iteration, request);
    if (endpoint.rank() == 0) summary.checkpoint = checkpoint_manager->last_path().string();
    if (tests && agreement.stop_signal() == 0 &&
        summary.exit_reason.empty()) {  // after the last save, which a signal cannot undo
      summary.test_loss = evaluate(Pretraining::Set::kTest).value_or(-1);
      reporter.flush();
    }
    summary.signal = agreement.stop_signal();
    return summary;
  }

  TrainerConfig config;
  core::Endpoint& endpoint;
  core::trace::Recorder* recorder;
  TrainerServices services;
  core::Arena arena;  // before everything that holds its blocks
  ops::Context ops;
  Reporter reporter;
  StepAgreement agreement;
  RunInputs inputs;
  std::unique_ptr<ProcessGroups> groups;
  nlohmann::json pipeline_choice;  // null: none was made
  std::unique_ptr<RankState> state;
  std::unique_ptr<ParameterStore> parameters;
  std::unique_ptr<RunSwap> swap;  // null: nothing leaves memory
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<ExpertPlacement> placement;  // null: no experts move
  std::unique_ptr<TensorDump> tensor_dump;     // null: no tensors are written
  std::unique_ptr<GptStage> stage;
  std::unique_ptr<StepRunner> runner;
  std::unique_ptr<Pretraining> objective;
  GroupCounters communication{};  // of the last step
  std::optional<core::Communicator> local_group;
  std::unique_ptr<CheckpointManager> checkpoint_manager;
  RankPart loaded_part = RankPart::kShare;           // what source has of this rank
  std::string loaded_from = config.checkpoint.load;  // for the log
  Progress progress;
  ParamSchedule schedule;
  std::unique_ptr<StepGuard> guard;
  nlohmann::json model_extra =
      nlohmann::json::object();  // of a run from scratch nothing: its family follows from its shape
  double flops_per_sample = 0;   // of all ranks
  BatchSizeSchedule batch_sizes;
  StepTimers timers;
};

Trainer::Trainer(TrainerConfig config, core::Endpoint& endpoint, core::ThreadPool& pool,
                 core::trace::Recorder* recorder, TrainerServices services)
    : impl_(std::make_unique<Impl>(std::move(config), endpoint, pool, recorder, std::move(services))) {}

Trainer::~Trainer() = default;

RunSummary Trainer::run() { return impl_->run(); }

}  // namespace ms::train
