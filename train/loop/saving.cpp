#include "train/loop/saving.h"

#include "core/scheduling.h"

namespace ms::train {

ckpt::Saver::Options saver_options(const CheckpointConfig& config) {
  ckpt::Saver::Options options;
  options.root = config.save;
  options.async = config.async_save;
  options.staging_buffers = config.ckpt_staging_buffers;
  options.lazy_snapshot = config.ckpt_lazy_snapshot;
  options.write_path = core::parse_write_path(config.ckpt_write_path);
  options.bytes_per_second = static_cast<int64_t>(config.ckpt_io_limit * 1e6);
  options.full_every = config.ckpt_full_every;
  options.compress = config.ckpt_compress;
  options.nice = config.ckpt_writer_nice;
  options.cpus = core::parse_cpu_list(config.ckpt_writer_cpus);
  options.retention = {config.save_keep_last, config.save_retain_interval};
  options.timeout_s = config.ckpt_timeout * 60;
  return options;
}

}  // namespace ms::train
