// The trees that a POSIX file system may keep of a recorded run when the machine stops.
//
// A call is durable only after an fsync that covers it. Data written to a file (in independent pages of 4 KiB) and its
// size may or may not be on the disk until that file is synced; a name that is created, renamed or removed until its
// folder is synced, whatever happened to the file. There is no other order; a rename is atomic.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/faults/recorded_calls.h"

namespace ms::test {

struct Call {
  CallKind kind;
  std::string path, other;  // within the recorded folder; "." is the folder itself
  int64_t offset = 0, size = 0;
  std::string data;
};
std::string call_text(const Call& call);  // "rename root/a to root/b"
std::vector<Call> read_calls(const std::filesystem::path& log);

// path -> content of a file; a folder's path ends in "/".
using Tree = std::map<std::string, std::string>;
Tree read_tree(const std::filesystem::path& folder);
void write_tree(const Tree& tree, const std::filesystem::path& folder);

class CrashDisk {
 public:
  explicit CrashDisk(const Tree& durable);
  void apply(const Call& call);  // throws std::runtime_error for an impossible call
  // The tree that running programs see.
  Tree now() const;
  // Calls `visit` with trees that a crash may leave. Of the changes that are not yet durable: none, all, all names, all
  // data; all but one, or one alone, for each change (at most `limit` of each kind); and `limit` random subsets. Paths
  // for which only_named(path) is true appear without content.
  void crash(int limit, std::mt19937_64& random, const std::function<bool(const std::string& path)>& only_named,
             const std::function<void(const Tree&)>& visit) const;

 private:
  struct Node;
  using Folder = std::map<std::string, std::shared_ptr<Node>>;
  struct Change {                                                      // a part of a call that is on the disk or not
    std::vector<std::pair<std::string, std::shared_ptr<Node>>> names;  // of a folder; null: removed
    int64_t offset = 0, size = -1;                                     // of a file: the data of a page, or the size
    std::string data;
    bool only_larger = false;
  };
  struct Node {
    bool is_folder = false;
    std::string data, durable_data;  // of a file
    Folder names, durable_names;     // of a folder
    std::vector<Change> pending;
  };
  using Kept = std::function<bool(const Node&, size_t change)>;

  std::shared_ptr<Node> find(const std::string& path) const;
  std::pair<std::shared_ptr<Node>, std::string> place_of(const std::string& path) const;
  static void change(Node& node, Change change);
  static void put(std::string& data, const Change& change);
  using OnlyNamed = std::function<bool(const std::string&)>;
  static void collect(const Node& node, const std::string& path, const Kept* kept, const OnlyNamed& only_named,
                      Tree& tree);
  static Folder names_left(const Node& node, const Kept& kept);
  std::vector<std::pair<const Node*, size_t>> pending() const;

  std::shared_ptr<Node> root_;
};

}  // namespace ms::test
