// Who writes a rank's checkpoint files, and what of the machine it may use.
#pragma once

#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct CkptWriterConfig {
  std::string ckpt_writer = "thread";
  std::string ckpt_write_path = "auto";
  double ckpt_io_limit = 0;
  int ckpt_writer_nice = 0;
  std::string ckpt_writer_cpus;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = CkptWriterConfig;
    field("ckpt_writer", &C::ckpt_writer,
          "thread, or process: a separate process that commits the last snapshot even if the trainer is killed");
    field("ckpt_write_path", &C::ckpt_write_path,
          "io_uring, direct (threads with O_DIRECT), buffered, or auto: the first that works in --save");
    field("ckpt_io_limit", &C::ckpt_io_limit, "MB/s that each rank's writer may write; 0: no limit");
    field("ckpt_writer_nice", &C::ckpt_writer_nice, "Niceness of the writer above the trainer's, 0 to 19");
    field("ckpt_writer_cpus", &C::ckpt_writer_cpus,
          "CPUs that the writer may run on, such as 0-3,7; empty: the trainer's");
  }
};

Feature ckpt_writer_feature();

}  // namespace ms::train
