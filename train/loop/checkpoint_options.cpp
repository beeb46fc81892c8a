#include "train/loop/checkpoint_options.h"

#include "core/scheduling.h"

namespace ms::train {

ckpt::Saver::Options saver_options(const CheckpointConfig& config, const layout::RankGrid& grid) {
  ckpt::Saver::Options options;
  options.root = config.save;
  options.async = config.async_save;
  options.staging_buffers = config.ckpt_staging_buffers;
  options.lazy_snapshot = config.ckpt_lazy_snapshot;
  options.write_path = core::parse_write_path(config.ckpt_write_path);
  options.bytes_per_second = static_cast<int64_t>(config.ckpt_io_limit * 1e6);
  options.full_every = config.ckpt_full_every;
  options.compress = config.ckpt_compress;
  options.compress_threads = config.ckpt_compress_threads;
  options.nice = config.ckpt_writer_nice;
  options.cpus = core::parse_cpu_list(config.ckpt_writer_cpus);
  options.retention = {config.save_keep_last, config.save_retain_interval};
  options.timeout_s = config.ckpt_timeout * 60;
  if (config.ckpt_gather && grid.dp * grid.cp > 1) {
    ckpt::GatherOptions& gather = options.gather.emplace();
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      gather.writer_of.push_back(grid.group(rank, layout::RankGrid::kDp | layout::RankGrid::kCp).front());
    }
    gather.slice_bytes = config.ckpt_slice_size * 4;
    gather.progress = ckpt::parse_gather_progress(config.ckpt_gather_progress);
  }
  return options;
}

ckpt::LocalTier::Options local_options(const CheckpointConfig& config, const layout::RankGrid& grid) {
  ckpt::LocalTier::Options options;
  options.root = config.non_persistent_local_ckpt_dir;
  options.writing = saver_options(config, grid);
  if (config.replication) {
    options.replication_jump = static_cast<int>(config.replication_jump);
    options.replication_factor = static_cast<int>(config.replication_factor);
  }
  options.slice_bytes = config.ckpt_slice_size * 4;
  options.progress = ckpt::parse_gather_progress(config.ckpt_gather_progress);
  return options;
}

}  // namespace ms::train
