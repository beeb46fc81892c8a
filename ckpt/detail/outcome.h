// How a part of a save ended, as it travels from a sender to its writer, from a rank to the coordinator, and from the
// writer process to the trainer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/error.h"

namespace ms::ckpt {

struct Outcome {
  std::string content;               // what it made; may be empty
  std::optional<core::Error> error;  // why it made nothing

  bool failed() const { return error.has_value(); }

  // The text that decode() takes: a line "ok" or the name of the error's code, then the content or the error's text.
  std::string encode() const;
  // Throws kCorruptData if the first line is none of these: the text was cut off or is no outcome.
  static Outcome decode(std::string_view text);
};

// Polled while a save waits for another rank: an error ends the wait.
using GiveUp = std::function<std::optional<core::Error>()>;

namespace detail {
Outcome outcome_of_text(const std::function<std::string()>& body);
}

// Runs body, which returns the content or nothing; an exception becomes the error. Never throws.
template <class Body>
Outcome outcome_of(const Body& body) {
  if constexpr (std::is_void_v<std::invoke_result_t<const Body&>>) {
    return detail::outcome_of_text([&] {
      body();
      return std::string();
    });
  } else {
    return detail::outcome_of_text(body);
  }
}

}  // namespace ms::ckpt
