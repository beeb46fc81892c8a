#include "train/config_checks.h"

#include <cstdint>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/signals.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

void validate_decoupled_lr(const OptimizerConfig& optimizer) {
  const auto& lr = optimizer.decoupled_lr;
  require(lr || !optimizer.decoupled_min_lr, "--decoupled-min-lr needs --decoupled-lr");
  if (!lr) return;
  require(*lr > 0, "--decoupled-lr ", *lr, ": give a positive number");
  const double min_lr = optimizer.decoupled_min_lr.value_or(optimizer.min_lr);
  require(min_lr >= 0 && min_lr <= *lr, optimizer.decoupled_min_lr ? "--decoupled-min-lr " : "--min-lr ", min_lr,
          " is negative or above --decoupled-lr ", *lr,
          optimizer.decoupled_min_lr ? "" : ": give --decoupled-min-lr, of which it is the default");
}

}  // namespace

void validate_schedule(const TrainingConfig& training, const SchedulerConfig& scheduler,
                       const OptimizerConfig& optimizer, const BatchSizeSchedule& batch_sizes, bool trains) {
  require(training.train_samples >= 0, "--train-samples ", training.train_samples, ": give a positive number");
  const bool by_samples = training.train_samples > 0;
  const int64_t batch = training.global_batch_size;
  require(training.rampup_batch_size.empty() || by_samples || !trains,
          "--rampup-batch-size needs --train-samples instead of --train-iters: iterations of a growing batch are no "
          "measure of the schedule's length");
  for (const auto& [samples, flag] : {std::pair{training.train_samples, "--train-samples"},
                                      std::pair{scheduler.lr_decay_samples, "--lr-decay-samples"},
                                      std::pair{scheduler.lr_warmup_samples, "--lr-warmup-samples"},
                                      std::pair{scheduler.lr_wsd_decay_samples, "--lr-wsd-decay-samples"}}) {
    require(samples <= kMaxSamples, flag, " ", samples, ": at most ", kMaxSamples);
  }
  for (const auto& [iterations, flag] :
       {std::pair{training.train_iters, "--train-iters"}, std::pair{training.eval_iters, "--eval-iters"},
        std::pair{scheduler.lr_decay_iters, "--lr-decay-iters"},
        std::pair{scheduler.lr_warmup_iters, "--lr-warmup-iters"},
        std::pair{scheduler.lr_wsd_decay_iters, "--lr-wsd-decay-iters"}}) {
    require(iterations <= kMaxSamples / batch, flag, " ", iterations, " of --global-batch-size ", batch, ": at most ",
            kMaxSamples, " samples");
  }
  if (by_samples) {
    const int64_t iterations = batch_sizes.iterations(training.train_samples);
    require(training.train_iters == 0 || training.train_iters == iterations,
            "--train-iters and --train-samples exclude each other");
    require(scheduler.lr_decay_iters == 0 && scheduler.lr_warmup_iters == 0 && scheduler.lr_wsd_decay_iters == 0,
            "with --train-samples the schedule is in samples too: --lr-decay-samples, --lr-warmup-samples and "
            "--lr-wsd-decay-samples, not --lr-decay-iters, --lr-warmup-iters and --lr-wsd-decay-iters");
  } else {
    require(scheduler.lr_decay_samples == 0 && scheduler.lr_warmup_samples == 0 && scheduler.lr_wsd_decay_samples == 0,
            "--lr-decay-samples, --lr-warmup-samples and --lr-wsd-decay-samples need --train-samples");
  }
  require(!trains || training.train_iters > 0, "--train-iters is ", training.train_iters,
          ": give the number of steps (or --train-samples of at least a global batch, or --skip-train)");
  require_one_of("--lr-decay-style", scheduler.lr_decay_style,
                 {"constant", "linear", "cosine", "inverse-square-root", "WSD"});
  require_one_of("--lr-wsd-decay-style", scheduler.lr_wsd_decay_style,
                 {"exponential", "linear", "cosine", "minus_sqrt"});
  const char* unit = by_samples ? "samples" : "iters";
  const int64_t decay = by_samples ? scheduler.lr_decay_samples : scheduler.lr_decay_iters;
  const int64_t warmup = by_samples ? scheduler.lr_warmup_samples : scheduler.lr_warmup_iters;
  const int64_t anneal = by_samples ? scheduler.lr_wsd_decay_samples : scheduler.lr_wsd_decay_iters;
  require(scheduler.lr_warmup_fraction == 0 || warmup == 0, "--lr-warmup-fraction and --lr-warmup-", unit,
          " exclude each other");
  require(scheduler.lr_warmup_fraction >= 0 && scheduler.lr_warmup_fraction < 1, "--lr-warmup-fraction ",
          scheduler.lr_warmup_fraction, ": expected a share in [0, 1)");
  require(warmup >= 0 && (!trains || warmup < decay), "--lr-warmup-", unit, " ", warmup, " must be below --lr-decay-",
          unit, " ", decay);
  require(scheduler.lr_decay_style != "WSD" || !trains || (anneal > 0 && anneal <= decay),
          "--lr-decay-style WSD needs --lr-wsd-decay-", unit, ", at most --lr-decay-", unit, " ", decay, "; it is ",
          anneal);
  require(!scheduler.override_opt_param_scheduler || !scheduler.use_checkpoint_opt_param_scheduler,
          "--override-opt_param-scheduler and --use-checkpoint-opt_param-scheduler exclude each other");

  const std::string& style = optimizer.weight_decay_incr_style;
  require_one_of("--weight-decay-incr-style", style, {"constant", "linear", "cosine"});
  const auto& start = optimizer.start_weight_decay;
  const auto& end = optimizer.end_weight_decay;
  require(style != "constant" || (!start && !end),
          "--start-weight-decay and --end-weight-decay need --weight-decay-incr-style linear or cosine");
  require(style == "constant" || (start && end && *start >= 0 && *end >= *start), "--weight-decay-incr-style ", style,
          " needs --start-weight-decay, at least 0, and --end-weight-decay, at least that");
}

void validate_saving(const CheckpointConfig& checkpoint) {
  require(checkpoint.save_interval >= 0, "--save-interval ", checkpoint.save_interval, ": at least 0");
  require(checkpoint.ckpt_step == 0 || !checkpoint.load.empty(), "--ckpt-step needs --load");
  require(!checkpoint.use_checkpoint_args || !checkpoint.load.empty(), "--use-checkpoint-args needs --load");
  require_one_of("--ckpt-on-error", checkpoint.ckpt_on_error, {"stop", "continue"});
  require(checkpoint.ckpt_timeout > 0, "--ckpt-timeout ", checkpoint.ckpt_timeout, ": minutes, above 0");
  require(checkpoint.save_keep_last >= 0 && checkpoint.save_retain_interval >= 0,
          "--save-keep-last and --save-retain-interval: at least 0");
}

void validate_steps(const TrainingConfig& training) {
  for (const int64_t iteration : training.iterations_to_skip) {
    require(iteration > 0, "--iterations-to-skip ", iteration, ": the first iteration is 1");
  }
  require(training.exit_interval >= 0, "--exit-interval ", training.exit_interval, ": at least 0");
  require(training.exit_duration_in_mins >= 0, "--exit-duration-in-mins ", training.exit_duration_in_mins,
          ": at least 0");
  require_one_of("--exit-signal", training.exit_signal, {"SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"});
  require(training.exit_signal == "SIGTERM" || training.exit_signal_handler,
          "--exit-signal needs --exit-signal-handler");
}

void validate_ranks(const ModelParallelConfig& parallel, int world_size) {
  const int tp = parallel.tensor_model_parallel_size;
  const int pp = parallel.pipeline_model_parallel_size;
  require(tp >= 1, "--tensor-model-parallel-size ", tp, ": at least 1");
  require(pp >= 1, "--pipeline-model-parallel-size ", pp, ": at least 1");
  const int cp = parallel.context_parallel_size;
  require(cp >= 1, "--context-parallel-size ", cp, ": at least 1");
  const int64_t replica_ranks = int64_t{tp} * pp * cp;
  require(world_size % replica_ranks == 0, "world size ", world_size,
          " is not a multiple of --tensor-model-parallel-size ", tp, " x --pipeline-model-parallel-size ", pp,
          cp > 1 ? core::cat(" x --context-parallel-size ", cp) : "", ". Start a multiple of ", replica_ranks,
          " ranks (mpirun -n)");
  require(parallel.distributed_timeout_minutes > 0, "--distributed-timeout-minutes ",
          parallel.distributed_timeout_minutes, ": give a positive number");
}

void validate_positions(const TrainingConfig& training, const core::TransformerConfig& model) {
  require(training.add_position_embedding || model.position_embedding_type != "learned_absolute",
          "--no-position-embedding contradicts --position-embedding-type learned_absolute; say rope or none");
  // Dynamic RoPE scaling is meant for sequences beyond the model's own limit.
  require(model.max_position_embeddings >= training.seq_length || model.rope_scaling_type == "dynamic",
          "--max-position-embeddings ", model.max_position_embeddings, " is below --seq-length ", training.seq_length);
}

void warn_of_other_optimizer(const OptimizerConfig& optimizer) {
  const OptimizerConfig plain;
  const auto warn = [](const char* flags) { core::log_warning("train.config", flags); };
  if (optimizer.optimizer == "adam" && optimizer.sgd_momentum != plain.sgd_momentum)
    warn("--sgd-momentum has no effect with --optimizer adam, whose first moment decays by --adam-beta1");
  const bool gives_adams = optimizer.adam_beta1 != plain.adam_beta1 || optimizer.adam_beta2 != plain.adam_beta2 ||
                           optimizer.adam_eps != plain.adam_eps;
  if (optimizer.optimizer == "sgd" && gives_adams)
    warn("--adam-beta1, --adam-beta2 and --adam-eps have no effect with --optimizer sgd, which has --sgd-momentum");
}

void warn_of_other_positions(const core::TransformerConfig& model) {
  const core::TransformerConfig plain;
  if (model.has_rotary_embedding()) return;
  for (const auto& [is_given, flag] :
       {std::pair{model.rotary_base != plain.rotary_base, "--rotary-base"},
        std::pair{model.rotary_percent != plain.rotary_percent, "--rotary-percent"},
        std::pair{model.rotary_interleaved != plain.rotary_interleaved, "--rotary-interleaved"},
        std::pair{model.rotary_base_local != plain.rotary_base_local, "--rotary-base-local"},
        std::pair{model.no_rope_freq != plain.no_rope_freq, "--no-rope-freq"},
        std::pair{model.rope_scaling_type != plain.rope_scaling_type, "--rope-scaling-type"}}) {
    if (!is_given) continue;
    core::log_warning("train.config", core::cat(flag, " has no effect with --position-embedding-type ",
                                                model.position_embedding_type, ", which rotates nothing"));
  }
}

void validate_optimizer(const OptimizerConfig& optimizer, const core::TransformerConfig& model, bool trains) {
  require(!trains || optimizer.lr > 0, "--lr is ", optimizer.lr, ": give the peak learning rate");
  require(optimizer.min_lr <= optimizer.lr || !trains, "--min-lr ", optimizer.min_lr, " is above --lr ", optimizer.lr);
  validate_decoupled_lr(optimizer);
  require(!optimizer.apply_wd_to_qk_layernorm || model.qk_layernorm,
          "--apply-wd-to-qk-layernorm needs --qk-layernorm; without it there are no such norms");
  require(optimizer.clip_grad >= 0, "--clip-grad ", optimizer.clip_grad, ": at least 0");
  require(
      optimizer.adam_beta1 >= 0 && optimizer.adam_beta1 < 1 && optimizer.adam_beta2 >= 0 && optimizer.adam_beta2 < 1,
      "--adam-beta1 and --adam-beta2 must be in [0, 1)");
  require_one_of("--optimizer", optimizer.optimizer, {"adam", "sgd"});
  require(optimizer.sgd_momentum >= 0 && optimizer.sgd_momentum < 1, "--sgd-momentum ", optimizer.sgd_momentum,
          ": at least 0, and below 1");
}

void validate_evaluation(const TrainingConfig& training, int64_t batch_size) {
  require(training.eval_iters >= 0 && training.eval_interval > 0,
          "--eval-interval must be positive, --eval-iters at least 0");
  require(training.eval_iters <= kMaxSamples / batch_size, "--eval-iters ", training.eval_iters,
          " of --eval-global-batch-size ", batch_size, ": at most ", kMaxSamples, " samples");
  if (training.fixed_eval_samples || training.eval_iters == 0) return;
  const char* flag = training.eval_global_batch_size > 0 ? "--eval-global-batch-size " : "--global-batch-size ";
  require(training.train_iters / training.eval_interval < kMaxSamples / batch_size / training.eval_iters,
          "--train-iters ", training.train_iters, " / --eval-interval ", training.eval_interval, " x --eval-iters ",
          training.eval_iters, " x ", flag, batch_size, ": at most ", kMaxSamples, " validation samples");
}

void validate_logger(const LoggerConfig& logger) {
  require(logger.log_interval > 0, "--log-interval ", logger.log_interval, ": at least 1");
  require(logger.timing_log_level >= 0 && logger.timing_log_level <= 2, "--timing-log-level ", logger.timing_log_level,
          ": expected 0, 1 or 2");
  require_one_of("--log-rank", logger.log_rank, {"0", "all"});
  require(logger.tensorboard_log_interval > 0, "--tensorboard-log-interval ", logger.tensorboard_log_interval,
          ": at least 1");
  require(logger.tensorboard_queue_size > 0, "--tensorboard-queue-size ", logger.tensorboard_queue_size,
          ": at least 1");
}

}  // namespace ms::train
