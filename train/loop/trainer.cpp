#include "train/loop/trainer.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>

#include "ckpt/commit.h"
#include "ckpt/writer.h"
#include "core/comm/agree.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/layout/formulas/flops.h"
#include "core/layout/model_layout.h"
#include "core/layout/process_group_table.h"
#include "core/log.h"
#include "core/process_memory.h"
#include "core/signals.h"
#include "core/trace/span.h"
#include "train/data/build_datasets.h"
#include "train/data/tokenizer.h"
#include "train/loop/checkpoint_manager.h"
#include "train/loop/generate.h"
#include "train/loop/group_counters.h"
#include "train/loop/profile_window.h"
#include "train/loop/roofline.h"
#include "train/loop/same_model.h"
#include "train/loop/step.h"
#include "train/loop/step_events.h"
#include "train/loop/step_timers.h"
#include "train/loop/tensorboard.h"
#include "train/ops/linear.h"
#include "train/optim/loss_scaler.h"
#include "train/optim/optimizer.h"
#include "train/optim/param_scheduler.h"
#include "train/optim/spike_guard.h"
#include "train/parallel/process_groups.h"
#include "train/state.h"

namespace ms::train {
namespace {

using core::cat;
using core::trace::Category;

// The signals that may end a run, as the ranks tell each other: one rank's is every rank's.
constexpr std::array<int, 5> kEndingSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

}  // namespace

struct Trainer::Impl {
  Impl(TrainerConfig given, core::Endpoint& end, core::ThreadPool& threads, core::trace::Recorder* trace,
       TrainerServices given_services)
      : config(std::move(given)),
        endpoint(end),
        recorder(trace),
        services(std::move(given_services)),
        ops{threads, arena, trace} {
    core::Communicator start_group = open_group(endpoint, layout::Group::kStart);
    // Else ranks could see different newest checkpoints, and none the last snapshot of a trainer that was killed.
    core::collectively(start_group, "start", [&] {
      if (endpoint.rank() == 0 && !config.checkpoint.load.empty()) ckpt::wait_for_writer(config.checkpoint.load);
    });
    core::collectively(start_group, "start", [&] { prepare(); });
    const std::string hash = fields().hash();
    if (start_group.bcast_string(hash, 0) != hash) differs = true;
    core::collectively(start_group, "start", [&] {
      if (differs)
        throw core::Error(core::ErrorCode::kInvalidArgument, "this rank's configuration differs from rank 0's");
    });
    groups = std::make_unique<ProcessGroups>(endpoint, config.grid(endpoint.size()));
    ops.deterministic = config.training.deterministic;
    ops.gradient_accumulation_fusion = config.training.gradient_accumulation_fusion;
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
    if (!config.checkpoint.save.empty() && trains()) checkpoint_manager->open_persistent(groups->checkpoint);
    core::collectively(groups->world, "set aside memory for snapshots", [&] {
      checkpoint_manager->reserve([&](RankPart part) { return shards_to_save(*state, *parameters, *optimizer, part); });
    });
    find_roofline();
    core::collectively(groups->world, "metrics", [&] {
      if (endpoint.rank() == 0 && !config.logger.metrics_path.empty())
        metrics = MetricsFile(config.logger.metrics_path);
      if (endpoint.rank() == 0 && !config.logger.tensorboard_dir.empty())
        events = EventWriter(config.logger.tensorboard_dir, config.logger.tensorboard_queue_size);
    });
    endpoint.use_threads(&threads);
  }
  ~Impl() { endpoint.use_threads(nullptr); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  static constexpr int kMaxNansInARow = 100;
  static constexpr int64_t kMaxStepsReserved = 100'000;  // of RunSummary::steps: 20 MB, which get pages as they fill

  core::ConfigFields fields() { return config.fields(); }
  // As --config takes it.
  nlohmann::json stored_config() {
    nlohmann::json stored = fields().dump();
    if (given_vocab_size > 0) stored["model"]["vocab_size"] = given_vocab_size;
    return stored;
  }

  void begin(std::string_view phase) const {
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
      agree(0);
    } catch (const core::AgreedError& e) {
      agree(0);
      if (stop_signal == 0) throw;
      core::log_info("train.exit", e.what());
    }
    return stop_signal == 0;
  }

  // Configuration, tokenizer, checkpoint to load: what can be wrong before anything is built.
  void prepare() {
    begin("config");
    config.data.validate();
    core::TransformerConfig& model = config.model;
    const TokenizerChoice choice = config.data.tokenizer(model.vocab_size);
    tokenizer = make_tokenizer(choice);
    if (config.data.eod_mask_loss && !tokenizer->eod()) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        cat("--eod-mask-loss: the tokenizer ", choice.tokenizer_model, choice.vocab_file,
                            " names no end-of-document token. Put eos_token into tokenizer_config.json beside a "
                            "tokenizer.json"));
    }
    if (!config.checkpoint.load.empty()) {
      open_checkpoint();
    } else if (!config.generate.generate.empty()) {
      core::log_warning("train.generate",
                        "--generate without --load: the weights are random, and so is the text. Give the folder of a "
                        "checkpoint or of a Hugging Face model with --load");
    }
    // The --vocab-size of a NullTokenizer is without its eod, which the model knows too.
    if (choice.tokenizer_type == "NullTokenizer") {
      model.vocab_size = tokenizer->vocab_size();
      given_vocab_size = choice.vocab_size;
    }
    if (model.vocab_size == 0) model.vocab_size = tokenizer->vocab_size();
    if (model.vocab_size < tokenizer->vocab_size()) {
      const std::string seen =
          cat("--vocab-size ", model.vocab_size, " is below the tokenizer's ", tokenizer->vocab_size());
      if (!config.generate.generate.empty()) throw core::Error(core::ErrorCode::kInvalidArgument, seen);
      // A data set may come from elsewhere (a model of 128 ids has no tokenizer of ours): its ids are checked as read.
      core::log_warning("train.data", cat(seen, "; a data set that holds larger ids will be refused"));
    }
    if (source != nullptr && model.max_position_embeddings == 0 && model.frequencies_follow_max_position()) {
      model.max_position_embeddings = source->info().model.max_position_embeddings;  // not --seq-length
    }
    config.resolve_and_validate(endpoint.size());
    if (!config.training.gradient_accumulation_fusion) {
      core::log_info(
          "train.config",
          cat("--no-gradient-accumulation-fusion: gradients of linear layers are rounded to ",
              core::dtype_name(config.params_dtype()),
              " in each micro-batch, as in Megatron. Without this flag they are fp32 sums, and steps faster"));
    }
    if (source != nullptr) check_same_model(source->info().model, config.model);
  }

  void open_checkpoint() {
    try {
      source = services.open_source(config.checkpoint.load, config.checkpoint.ckpt_step);
    } catch (const core::Error& e) {
      // As Megatron: an empty --load folder starts from scratch, so that one command line serves every start of a job.
      const bool optional = e.code() == core::ErrorCode::kNotFound &&
                            (!config.checkpoint.exit_on_missing_checkpoint || has_local_tier()) &&
                            config.checkpoint.ckpt_step == 0 && trains() && !config.checkpoint.use_checkpoint_args &&
                            !config.checkpoint.finetune;
      if (!optional) throw;
      missing = e.what();
    }
  }

  void build() {
    begin("build");
    parameters = std::make_unique<ParameterStore>(*state);
    optimizer = std::make_unique<Optimizer>(*state, *parameters);
    stage = std::make_unique<GptStage>(*state, *parameters);
    runner = std::make_unique<StepRunner>(*state, *stage, &timers);
    core::log_info("train.model", cat("parameters: ", config.model.num_parameters(groups->grid.tp), " | ranks: ",
                                      endpoint.size(), " = TP ", groups->grid.tp, " x DP ", groups->grid.dp, " x PP ",
                                      groups->grid.pp, " | threads per rank: ", ops.pool.num_threads(),
                                      " | dtype: ", core::dtype_name(config.params_dtype())));
    core::log_debug("train.model", ops::explain_gemm(ops, config.params_dtype()));
    flops_per_sample =
        static_cast<double>(layout::model_flops_per_sample(config.model, config.training.seq_length, groups->grid.tp));
  }

  // The same on all ranks: given, or the mean of what they have measured. Only steps are held against it.
  void find_roofline() {
    if (!trains()) return;
    const double given = config.logger.peak_tflops;
    const core::DType dtype = config.params_dtype();
    if (given > 0) {
      roofline = Roofline(given, /*measured=*/false);
      core::log_info("train.roofline", cat(given, " TFLOP/s per rank (--peak-tflops)"));
      return;
    }
    std::array<double, 1> sum{};
    core::collectively(groups->world, "measure the roofline", [&] { sum[0] = measure_gemm_tflops(ops, dtype); });
    if (endpoint.size() > 1) groups->world.allreduce(sum);
    roofline = Roofline(sum[0] / endpoint.size(), /*measured=*/true);
    core::log_info("train.roofline",
                   cat(roofline.tflops(), " TFLOP/s per rank: ", core::dtype_name(dtype),
                       " GEMM of 1024 x 1024 x 1024, ", ops.pool.num_threads(), " threads, mean over ranks"));
  }

  void measure_roofline_again() {
    std::array<double, 1> sum{};
    core::collectively(groups->world, "measure the roofline", [&] {
      sum[0] = measure_gemm_tflops(ops, config.params_dtype(), /*min_rounds=*/2, /*seconds=*/0);
    });
    if (endpoint.size() > 1) groups->world.allreduce(sum);
    const double tflops = sum[0] / endpoint.size();
    core::log_debug("train.roofline", cat("measured again: ", tflops, " TFLOP/s per rank"));
    if (const std::string news = roofline.measured_again(tflops); !news.empty()) {
      core::log_warning("train.roofline", news);
    }
  }

  bool trains() const { return !config.training.skip_train && config.generate.generate.empty(); }
  bool has_local_tier() const { return trains() && !config.checkpoint.non_persistent_ckpt_type.empty(); }

  // Opens the local tier; what it has that is newer than the persistent checkpoint takes its place. False: as
  // go_through.
  bool find_local() {
    const CheckpointConfig& c = config.checkpoint;
    if (!c.replication && c.replication_jump != 0) {
      core::log_warning("train.config", "--replication-jump has no effect without --replication");
    }
    if (!has_local_tier()) return true;
    return go_through([&] {
      local_group.emplace(open_group(endpoint, layout::Group::kLocalCheckpoint));
      ckpt::LocalTier& local = checkpoint_manager->open_local(*local_group);
      if (c.load.empty() || c.ckpt_step != 0 || c.finetune || !c.load_optim) return;
      auto found = local.find(layout::layout_to_json(state->layout()), all_shards(*state, *parameters, *optimizer),
                              source != nullptr ? source->info().iteration : 0);
      if (!found) return;
      core::collectively(groups->world, "load local checkpoint",
                         [&] { check_same_model(found->source->info().model, config.model); });
      loaded_part = RankPart::kAll;
      loaded_from = cat(c.non_persistent_local_ckpt_dir, " (local: ", found->fetched, " of ", endpoint.size(),
                        " parts from other ranks)");
      source = std::move(found->source);
    });
  }

  void load() {
    begin("load");
    if (source == nullptr && !missing.empty()) {
      if (config.checkpoint.exit_on_missing_checkpoint) throw core::Error(core::ErrorCode::kNotFound, missing);
      core::log_warning("train.load",
                        cat(missing, "; starting from scratch (--exit-on-missing-checkpoint makes it an error)"));
    }
    schedule = param_schedule(config);
    scaler = std::make_unique<LossScaler>(config.training);
    spikes = std::make_unique<SpikeGuard>(config.training);
    batch_sizes = config.batch_sizes();
    if (source == nullptr) {
      if (trains()) config.validate_batch_sizes(endpoint.size(), 0);
      parameters->initialize(static_cast<uint64_t>(config.rng.seed),
                             [&](const Parameter& parameter, const core::TensorView& values) {
                               optimizer->set_master(parameter, values);
                               if (stopped()) throw core::Error(core::ErrorCode::kIo, "interrupted");
                             });
      return;
    }
    const bool with_optimizer =
        trains() && config.checkpoint.load_optim && !config.checkpoint.finetune && source->info().iteration > 0;
    const Progress loaded = load_state(*state, *parameters, *optimizer, *source, loaded_part, with_optimizer, stopped);
    if (!config.checkpoint.finetune) progress = loaded;
    if (trains()) config.validate_batch_sizes(endpoint.size(), progress.consumed_train_samples);
    if (with_optimizer) restore_optimization(source->info().common);
    model_extra = source->info().model_extra;
    core::log_info("train.load", cat("loaded iteration ", loaded.iteration, " from ", loaded_from,
                                     with_optimizer ? ", with optimizer state" : ", weights only"));
    source.reset();
  }

  // What steers the optimizer from outside its tensors.
  void restore_optimization(const nlohmann::json& common) {
    const auto saved = [&](const char* key) {
      return common.is_object() ? common.value(key, nlohmann::json()) : nlohmann::json();
    };
    schedule = continue_schedule(schedule, saved("opt_param_scheduler"), config.scheduler.override_opt_param_scheduler,
                                 config.scheduler.use_checkpoint_opt_param_scheduler);
    scaler->restore(saved("grad_scaler"));
    spikes->restore(saved("spike_guard"));
  }

  // False: as go_through.
  bool build_data() {
    if (!config.generate.generate.empty()) return true;
    const TrainingConfig& t = config.training;
    const int64_t train_samples = t.skip_train ? 0 : config.num_train_samples();
    const auto build_now = [&] {
      begin("data");
      data =
          build_datasets(config.data, t.seq_length, static_cast<uint64_t>(config.rng.seed), train_samples,
                         config.num_valid_samples(), t.eval_iters * config.eval_batch_size(), stopped, tokenizer.get());
      if (!t.skip_train && data.train == nullptr) {
        throw core::Error(
            core::ErrorCode::kInvalidArgument,
            "there is no training data: give --data-path or --train-data-path (or --mock-data for a test)");
      }
      if (t.skip_train && data.valid == nullptr && data.test == nullptr) {
        throw core::Error(core::ErrorCode::kInvalidArgument,
                          "--skip-train evaluates, but there is no data for it: give --valid-data-path or "
                          "--test-data-path, or --data-path with a --split, and --eval-iters");
      }
    };
    // Rank 0 first: it builds the cached indices that the others read.
    for (const bool first : {true, false}) {
      const bool turn = first == (endpoint.rank() == 0);
      if (!go_through("data", [&] {
            if (turn) build_now();
          })) {
        return false;
      }
    }
    return true;
  }

  // A global batch's micro-batches of this rank, until the next call.
  const std::vector<Microbatch>& read_batch(const SampleSource& samples, int64_t consumed, int64_t batch_size) {
    core::trace::Span span(recorder, Category::kUserAnnotation, "data");
    SamplerPosition position;
    position.consumed_samples = consumed;
    position.data_parallel_rank = groups->dp_cp.rank();
    position.data_parallel_size = groups->dp_cp.size();
    position.micro_batch_size = config.training.micro_batch_size;
    position.num_microbatches = batch_size / (position.micro_batch_size * position.data_parallel_size);
    const auto masked = config.data.eod_mask_loss ? tokenizer->eod() : std::nullopt;
    choose_samples(position, microbatches);
    for (Microbatch& microbatch : microbatches) {
      read_microbatch(samples, masked, config.model.vocab_size, microbatch);
    }
    return microbatches;
  }

  const std::vector<Microbatch>& read_training_batch(int64_t batch_size) {
    const TimedPart timed(timers, StepTimers::kBatchGenerator);
    return read_batch(*data.train, progress.consumed_train_samples, batch_size);
  }

  enum class EvaluatedSet { kValidation, kTest };

  // The mean loss of --eval-iters batches of --eval-global-batch-size, in the log and the metrics too. nullopt: a
  // signal has come, and there is no time for the rest. Megatron's evaluate_and_print_results, but for the names of the
  // test set's numbers, which are the validation set's there.
  std::optional<double> evaluate(EvaluatedSet set) {
    core::trace::Span span(recorder, Category::kUserAnnotation, "evaluation");
    const bool test = set == EvaluatedSet::kTest;
    const SampleSource& samples = test ? *data.test : *data.valid;
    const int64_t first = test ? 0 : config.first_valid_sample(progress.iteration);
    const int64_t batch = config.eval_batch_size();
    double sum = 0;
    for (int64_t i = 0; i < config.training.eval_iters; ++i) {
      sum += runner->evaluate(read_batch(samples, first + i * batch, batch)).loss;
      agree(0);
      if (stop_signal != 0) return std::nullopt;
    }
    const double loss = sum / static_cast<double>(config.training.eval_iters);
    core::log_info("train.eval", cat("validation loss at iteration ", progress.iteration, test ? " on test set" : "",
                                     " | lm loss value: ", loss, " | lm loss PPL: ", std::exp(loss)));
    const std::string tag = test ? "lm loss test" : "lm loss validation", ppl_tag = tag + " ppl";
    const nlohmann::json record = {{"iteration", progress.iteration}, {tag, loss}, {ppl_tag, std::exp(loss)}};
    metrics.write(record.dump());
    events.add_scalar(tag, loss, progress.iteration, progress.consumed_train_samples);
    if (config.logger.log_validation_ppl_to_tensorboard) {
      events.add_scalar(ppl_tag, std::exp(std::min(20.0, loss)), progress.iteration, progress.consumed_train_samples);
    }
    // The result of a run that only evaluates; one that trains ends by its own loss (refuse_nan).
    if (config.training.skip_train && config.training.check_for_nan_in_loss_and_grad && !std::isfinite(loss)) {
      core::collectively(groups->world, cat("evaluation at iteration ", progress.iteration), [&] {
        throw core::Error(
            core::ErrorCode::kInvalidArgument,
            cat("lm loss ", loss, ": not finite. The weights that were loaded are damaged, or overflow in ",
                core::dtype_name(config.params_dtype()),
                " (--no-check-for-nan-in-loss-and-grad: exit 0 all the same)"));
      });
    }
    return loss;
  }

  // Ends the run on all ranks: their numbers are the same.
  void refuse(const StepMetrics& m, const std::string& why) {
    core::collectively(groups->world, cat("iteration ", m.iteration), [&] {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        cat("lm loss ", m.loss, ", grad norm ", m.grad_norm, ": ", why));
    });
  }

  void refuse_nan(const StepMetrics& m) {
    refuse(m, cat("not finite. What was saved is as it was. Lower --lr, leave the samples out (--iterations-to-skip ",
                  m.iteration, "), or let such steps be skipped (--no-check-for-nan-in-loss-and-grad)"));
  }

  // What comes next is not worth computing: with the same weights, the losses that follow are as bad.
  void refuse_endless_nans(const StepMetrics& m) {
    refuse(m,
           cat("not finite, as of each of the last ", kMaxNansInARow, " steps",
               scaler->is_dynamic() ? " at --min-loss-scale" : "",
               ", without an update between. What was saved is as it was: go on from before they began, with a lower "
               "--lr"));
  }

  // A window's length of spikes: the mean that they are held against is of no use any more.
  void refuse_spikes(const StepMetrics& m) {
    refuse(m, cat("the last of ", config.training.spike_skip_window, " steps in a row above --spike-skip-factor ",
                  config.training.spike_skip_factor,
                  " x their mean, as many as --spike-skip-window, without an update between. What was saved is as it "
                  "was. Lower --lr, or raise --spike-skip-factor (0: none)"));
  }

  // Forward, backward and, unless its numbers speak against it, the update; fills what they say into m.
  void compute_step(StepMetrics& m) {
    parameters->zero_grads();
    begin("forward");
    const BatchResult result = [&] {
      const TimedPart timed(timers, StepTimers::kForwardBackward);
      return runner->train(read_training_batch(m.global_batch_size), m.loss_scale);
    }();
    begin("optimizer");
    const double grad_scale = result.grad_scale * config.gradient_factor(groups->dp_cp.size());
    m.loss = result.loss;
    {
      const TimedPart timed(timers, StepTimers::kAllGradsSync);
      m.grad_norm = optimizer->finish_gradients(grad_scale);
    }
    m.nan = !std::isfinite(m.loss) || !std::isfinite(m.grad_norm);
    // With a dynamic loss scale overflow is its signal to shrink, not an error.
    if (m.nan && config.training.check_for_nan_in_loss_and_grad && !scaler->is_dynamic()) refuse_nan(m);
    const bool scale_may_help = scaler->is_dynamic() && scaler->scale() > config.training.min_loss_scale;
    scaler->update(m.nan);
    if (m.nan && !scale_may_help && ++nans_in_a_row >= kMaxNansInARow) refuse_endless_nans(m);
    const bool spike = !m.nan && spikes->is_spike(m.loss, m.grad_norm);
    m.skipped = m.nan || spike;
    if (spike && spikes->skip()) refuse_spikes(m);
    if (m.skipped) {
      const std::string above = cat(", above --spike-skip-factor ", config.training.spike_skip_factor, " x their mean");
      core::log_warning("train.step", cat("iteration ", m.iteration, " is not applied: lm loss ", m.loss,
                                          ", grad norm ", m.grad_norm, spike ? above : ""));
      return;
    }
    nans_in_a_row = 0;
    spikes->accept(m.loss, m.grad_norm);
    checkpoint_manager->before_update();
    if (config.logger.log_num_zeros_in_grad) m.num_zeros = optimizer->num_zeros();
    const TimedPart timed(timers, StepTimers::kOptimizer);
    optimizer->update({.lr = m.learning_rate,
                       .weight_decay = weight_decay(schedule, progress.scheduler_samples),
                       .decoupled_lr = m.decoupled_learning_rate,
                       .step = progress.optimizer_steps + 1,
                       .grad_scale = grad_scale,
                       .grad_norm = m.grad_norm});
    ++progress.optimizer_steps;
    progress.scheduler_samples += m.global_batch_size;
  }

  StepMetrics train_step() {
    const int64_t start_ns = core::trace::now_ns();
    arena.reset_peaks();
    endpoint.arena().reset_peaks();
    const int64_t flops_before = ops.flops;
    reset_counters(*groups);
    core::trace::Span span(recorder, Category::kUserAnnotation, step_name());
    const std::vector<int64_t>& unwanted = config.training.iterations_to_skip;
    StepMetrics m;
    m.iteration = progress.iteration + 1;
    m.train_iters = config.training.train_iters;
    m.global_batch_size = batch_sizes.at(progress.consumed_train_samples);
    if (m.global_batch_size != last_batch_size && last_batch_size != 0) {
      core::log_info("train.step", cat("iteration ", m.iteration, ": ramping up batch size from ", last_batch_size,
                                       " to ", m.global_batch_size));
    }
    last_batch_size = m.global_batch_size;
    m.learning_rate = learning_rate(schedule, progress.scheduler_samples);
    if (const auto decoupled = decoupled_schedule(schedule)) {
      m.decoupled_learning_rate = learning_rate(*decoupled, progress.scheduler_samples);
    }
    m.loss_scale = scaler->scale();
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
    const double flops = agree(m.executed_flops);
    m.seconds = static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9;
    if (!m.passed_over) m.tokens = m.global_batch_size * config.training.seq_length;
    const double per_tflop = 1e-12 / (endpoint.size() * m.seconds);
    m.hardware_tflops_per_rank = flops * per_tflop;
    if (!m.passed_over) m.tflops_per_rank = flops_per_sample * static_cast<double>(m.global_batch_size) * per_tflop;
    if (const std::string news = roofline.reached(m.hardware_tflops_per_rank); !news.empty()) {
      core::log_warning("train.roofline", news);
    }
    m.mfu = m.tflops_per_rank / roofline.tflops();
    m.hfu = m.hardware_tflops_per_rank / roofline.tflops();
    for (int tag = 0; tag < core::kNumMemoryTags; ++tag) {
      m.peak_bytes[static_cast<size_t>(tag)] = arena.peak_bytes(static_cast<core::MemoryTag>(tag));
    }
    m.peak_bytes[static_cast<size_t>(core::MemoryTag::kComm)] += endpoint.arena().peak_bytes(core::MemoryTag::kComm);
    m.total_peak_bytes = arena.total_peak_bytes() + endpoint.arena().total_peak_bytes();
    m.arena = arena.use();
    m.process_peak_bytes = core::peak_resident_bytes();
    return m;
  }

  // What the ranks tell each other after a step, a batch of an evaluation or a generated token: their flops, whose sum
  // it returns, whether a signal has come to any of them, whether any has seen the time run out, how their saves go,
  // and whether any was asked for a trace.
  double agree(int64_t flops) {
    std::array<double, 1 + kEndingSignals.size() + 2 + CheckpointManager::kNumStatuses> told{};
    const auto signals = std::span(told).subspan<1, kEndingSignals.size()>();
    const auto rest = std::span(told).subspan<1 + kEndingSignals.size()>();
    told[0] = static_cast<double>(flops);
    for (size_t i = 0; i < signals.size(); ++i) signals[i] = core::termination_signal() == kEndingSignals[i] ? 1 : 0;
    const double minutes = static_cast<double>(core::trace::now_ns() - began_ns) * 1e-9 / 60;
    const double limit = config.training.exit_duration_in_mins;
    rest[0] = limit > 0 && minutes > limit ? 1 : 0;
    rest[1] = core::counted_signals() > profile_requests ? 1 : 0;
    std::ranges::copy(checkpoint_manager->local_status(), rest.begin() + 2);
    if (endpoint.size() > 1) groups->world.allreduce(told);
    for (size_t i = signals.size(); i > 0; --i) {
      if (signals[i - 1] > 0) stop_signal = kEndingSignals[i - 1];
    }
    out_of_time = rest[0] > 0;
    profile_asked = rest[1] > 0;
    checkpoint_manager->set_global_status(rest.last<CheckpointManager::kNumStatuses>());
    return told[0];
  }

  // Why the run ends here, before --train-iters; empty if it goes on. Megatron's order: signal, duration, interval.
  std::string exit_reason() const {
    const int64_t every = config.training.exit_interval;
    if (stop_signal != 0) return cat("signal ", stop_signal);
    if (out_of_time) return cat("--exit-duration-in-mins ", config.training.exit_duration_in_mins);
    if (every > 0 && progress.iteration % every == 0) return cat("--exit-interval ", every);
    return "";
  }
  // A signal ends the run as it stands, unless it is the one that --exit-signal-handler answers with a save.
  bool saves_at_exit() const {
    return stop_signal == 0 ||
           (config.training.exit_signal_handler && stop_signal == core::parse_signal(config.training.exit_signal));
  }

  void log_step(const StepMetrics& m) {
    if (metrics.is_open()) {
      m.write_json(communication, step_text);
      metrics.write(step_text);
    }
    if (m.iteration % config.logger.tensorboard_log_interval == 0) {
      RunFacts run{endpoint.size(), progress.skipped_train_samples};
      for (int tag = 0; tag < core::kNumMemoryTags; ++tag) {
        run.allocated_bytes += arena.current_bytes(static_cast<core::MemoryTag>(tag));
      }
      write_step_events(events, config, m, run);
    }
    interval.add(m);
    interval.write_line(false, step_text);
    core::log_progress(step_text);
    if (m.iteration % config.logger.log_interval != 0 && m.iteration != m.train_iters) return;
    interval.write_line(config.logger.report_memory, step_text);
    core::log_info("train.step", step_text);
    interval.clear();
    if (roofline.is_measured_after(++log_lines)) measure_roofline_again();
    if (const int64_t level = config.logger.timing_log_level; level > 0) {
      core::log_info("train.step", timers.take_line(groups->world, level));
    }
  }

  std::string_view step_name() {
    std::snprintf(step_label.data(), step_label.size(), "ProfilerStep#%" PRId64, progress.iteration);
    return step_label.data();
  }

  ckpt::SaveRequest save_request(RankPart part) {
    ckpt::SaveRequest request;
    core::collectively(groups->world, "save", [&] {
      begin("save");
      request = make_save_request(*state, *parameters, *optimizer, progress, model_extra,
                                  {{"config", stored_config()},
                                   {"opt_param_scheduler", schedule_to_json(schedule)},
                                   {"grad_scaler", scaler->state()},
                                   {"spike_guard", spikes->state()}},
                                  part);
    });
    return request;
  }

  RunSummary run() {
    RunSummary summary;
    summary.signal = stop_signal;
    if (stop_signal != 0) return summary;  // it came before the first step
    if (!config.generate.generate.empty()) {
      const auto goes_on = [&] {
        agree(0);
        return stop_signal == 0;
      };
      summary.generated =
          generate(*state, *stage, *tokenizer, config.generate.generate, config.generate.num_tokens_to_generate,
                   config.generate.temperature, static_cast<uint64_t>(config.rng.seed), goes_on);
      summary.signal = stop_signal;
      return summary;
    }
    const bool evaluates = data.valid != nullptr, tests = data.test != nullptr;
    if (config.training.skip_train) {
      if (evaluates) summary.validation_loss = evaluate(EvaluatedSet::kValidation).value_or(-1);
      if (tests && stop_signal == 0) summary.test_loss = evaluate(EvaluatedSet::kTest).value_or(-1);
      events.flush();
      summary.signal = stop_signal;
      return summary;
    }
    const auto request = [&](RankPart part) { return save_request(part); };
    ProfileWindow window(config.profiling, groups->world, arena, recorder, services.convert_trace);
    // Else the list's growth would be allocations of later steps.
    summary.steps.reserve(static_cast<size_t>(
        std::clamp<int64_t>(config.training.train_iters - progress.iteration, 0, kMaxStepsReserved)));
    while (progress.iteration < config.training.train_iters && summary.exit_reason.empty()) {
      window.before_step(progress.iteration);
      StepMetrics m = train_step();
      summary.steps.push_back(m);
      summary.communication = communication;
      log_step(m);
      checkpoint_manager->finish_failed();
      checkpoint_manager->save_if_due(progress.iteration, request);
      optimizer->split_master();
      if (evaluates && stop_signal == 0 &&
          (progress.iteration % config.training.eval_interval == 0 || progress.iteration == m.train_iters)) {
        if (const auto loss = evaluate(EvaluatedSet::kValidation)) summary.validation_loss = *loss;
      }
      if (profile_asked) {
        ++profile_requests;
        window.toggle();
      }
      window.after_step(progress.iteration);
      if (progress.iteration < m.train_iters || stop_signal != 0) summary.exit_reason = exit_reason();
    }
    core::log_progress("");
    window.close(progress.iteration);
    events.flush();
    if (!summary.exit_reason.empty()) {
      core::log_info("train.exit", cat("exiting at iteration ", progress.iteration, ": ", summary.exit_reason));
    }
    checkpoint_manager->close(saves_at_exit() && !summary.steps.empty(), progress.iteration, request);
    if (endpoint.rank() == 0) summary.checkpoint = checkpoint_manager->last_path().string();
    if (tests && stop_signal == 0 && summary.exit_reason.empty()) {  // after the last save, which a signal cannot undo
      summary.test_loss = evaluate(EvaluatedSet::kTest).value_or(-1);
      events.flush();
    }
    summary.signal = stop_signal;
    return summary;
  }

  TrainerConfig config;
  core::Endpoint& endpoint;
  core::trace::Recorder* recorder;
  TrainerServices services;
  core::Arena arena;  // before everything that holds its blocks
  ops::Context ops;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ckpt::Source> source;
  std::unique_ptr<ProcessGroups> groups;
  std::unique_ptr<RankState> state;
  std::unique_ptr<ParameterStore> parameters;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<GptStage> stage;
  std::unique_ptr<StepRunner> runner;
  TrainValidTest data;
  std::vector<Microbatch> microbatches;  // what read_batch has read
  GroupCounters communication{};         // of the last step
  std::string step_text;                 // what log_step has written
  std::optional<core::Communicator> local_group;
  std::unique_ptr<CheckpointManager> checkpoint_manager;
  RankPart loaded_part = RankPart::kShare;           // what source has of this rank
  std::string loaded_from = config.checkpoint.load;  // for the log
  std::string missing;                               // why there is no source, where there should be one
  MetricsFile metrics;
  EventWriter events;
  Progress progress;
  ParamSchedule schedule;
  std::unique_ptr<LossScaler> scaler;
  std::unique_ptr<SpikeGuard> spikes;
  nlohmann::json model_extra =
      nlohmann::json::object();  // of a run from scratch nothing: its family follows from its shape
  int64_t given_vocab_size = 0;  // of a NullTokenizer: without its eod; 0 with any other
  Roofline roofline;
  double flops_per_sample = 0;  // of all ranks
  BatchSizeSchedule batch_sizes;
  std::array<char, 40> step_label{};
  const int64_t began_ns = core::trace::now_ns();
  int stop_signal = 0;
  int64_t profile_requests = 0;  // answered
  bool profile_asked = false;    // once more, as of the last agree()
  int64_t last_batch_size = 0;   // of the step before; 0: none yet
  int nans_in_a_row = 0;         // since an update, at a loss scale that cannot fall
  bool out_of_time = false;
  LogInterval interval;  // since the last line
  int64_t log_lines = 0;
  StepTimers timers;
  bool differs = false;
};

Trainer::Trainer(TrainerConfig config, core::Endpoint& endpoint, core::ThreadPool& pool,
                 core::trace::Recorder* recorder, TrainerServices services)
    : impl_(std::make_unique<Impl>(std::move(config), endpoint, pool, recorder, std::move(services))) {}

Trainer::~Trainer() = default;

RunSummary Trainer::run() { return impl_->run(); }

}  // namespace ms::train
