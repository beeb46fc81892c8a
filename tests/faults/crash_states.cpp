#include "tests/faults/crash_states.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

namespace ms::test {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kPage = 4096;

[[noreturn]] void impossible(const Call& call, const char* why) {
  throw std::runtime_error(call_text(call) + ": " + why);
}

}  // namespace

std::string call_text(const Call& call) {
  static const char* const kNames[] = {"create",       "mkdir",  "write to", "resize", "extend", "fsync file",
                                       "fsync folder", "rename", "link",     "unlink", "rmdir",  "say"};
  std::string text = std::string(kNames[static_cast<size_t>(call.kind)]) + " " + call.path;
  if (!call.other.empty()) text += " to " + call.other;
  if (call.kind == CallKind::kWrite)
    text += " at " + std::to_string(call.offset) + ", " + std::to_string(call.size) + " bytes";
  return text;
}

std::vector<Call> read_calls(const fs::path& log) {
  const std::string bytes = read_file(log.string());
  std::vector<Call> calls;
  for (size_t at = 0; at < bytes.size();) {
    RecordHead head;
    if (bytes.size() - at < sizeof head) throw std::runtime_error("the log of calls is cut");
    std::memcpy(&head, bytes.data() + at, sizeof head);
    at += sizeof head;
    const auto take = [&](size_t size) {
      const std::string part = bytes.substr(at, size);
      at += size;
      return part;
    };
    Call call{head.kind, {}, {}, head.offset, head.size, {}};
    call.path = take(head.path_bytes);
    call.other = take(head.other_bytes);
    call.data = take(head.data_bytes);
    calls.push_back(std::move(call));
  }
  return calls;
}

Tree read_tree(const fs::path& folder) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string path = fs::relative(entry.path(), folder).string();
    if (entry.is_directory()) {
      tree[path + "/"];
    } else {
      tree[path] = read_file(entry.path().string());
    }
  }
  return tree;
}

void write_tree(const Tree& tree, const fs::path& folder) {
  for (const auto& [path, data] : tree) {
    if (path.back() == '/') {
      fs::create_directories(folder / path);
    } else {
      write_file((folder / path).string(), data);
    }
  }
}

CrashDisk::CrashDisk(const Tree& durable) : root_(std::make_shared<Node>()) {
  root_->is_folder = true;
  for (const auto& [path, data] : durable) {  // sorted: a folder comes before its entries
    auto node = std::make_shared<Node>();
    node->is_folder = path.back() == '/';
    node->data = node->durable_data = data;
    const auto [folder, name] = place_of(node->is_folder ? path.substr(0, path.size() - 1) : path);
    folder->names[name] = folder->durable_names[name] = node;
  }
}

std::shared_ptr<CrashDisk::Node> CrashDisk::find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  if (path == ".") return node;
  for (const fs::path& part : fs::path(path)) {
    const auto found = node->names.find(part.string());
    if (found == node->names.end()) return nullptr;
    node = found->second;
  }
  return node;
}

std::pair<std::shared_ptr<CrashDisk::Node>, std::string> CrashDisk::place_of(const std::string& path) const {
  const fs::path parent = fs::path(path).parent_path();
  return {find(parent.empty() ? "." : parent.string()), fs::path(path).filename().string()};
}

void CrashDisk::put(std::string& data, const Change& change) {
  if (change.size >= 0) {
    if (!change.only_larger || static_cast<size_t>(change.size) > data.size())
      data.resize(static_cast<size_t>(change.size));
    return;
  }
  const auto offset = static_cast<size_t>(change.offset);
  if (data.size() < offset + change.data.size()) data.resize(offset + change.data.size());
  data.replace(offset, change.data.size(), change.data);
}

void CrashDisk::change(Node& node, Change change) {
  if (node.is_folder) {
    for (const auto& [name, child] : change.names) {
      if (child == nullptr) {
        node.names.erase(name);
      } else {
        node.names[name] = child;
      }
    }
  } else {
    put(node.data, change);
  }
  node.pending.push_back(std::move(change));
}

void CrashDisk::apply(const Call& call) {
  if (call.kind == CallKind::kSaid) return;
  const std::shared_ptr<Node> node = find(call.path);
  const bool makes = call.kind == CallKind::kCreate || call.kind == CallKind::kMakeFolder;
  if (makes ? node != nullptr : node == nullptr) impossible(call, makes ? "it is there" : "it is not there");
  const auto [folder, name] = place_of(call.path);
  if (folder == nullptr) impossible(call, "no such folder");
  switch (call.kind) {
    case CallKind::kCreate:
    case CallKind::kMakeFolder: {
      auto made = std::make_shared<Node>();
      made->is_folder = call.kind == CallKind::kMakeFolder;
      change(*folder, {{{name, made}}});
      break;
    }
    case CallKind::kWrite:
      for (int64_t at = call.offset; at < call.offset + call.size;) {
        const int64_t end = std::min(call.offset + call.size, (at / kPage + 1) * kPage);
        Change page;
        page.offset = at;
        page.data = call.data.substr(static_cast<size_t>(at - call.offset), static_cast<size_t>(end - at));
        change(*node, std::move(page));
        at = end;
      }
      break;
    case CallKind::kResize:
    case CallKind::kExtend: {
      Change size;
      size.size = call.size;
      size.only_larger = call.kind == CallKind::kExtend;
      change(*node, std::move(size));
      break;
    }
    case CallKind::kSyncFile:
    case CallKind::kSyncFolder:
      node->durable_data = node->data;
      node->durable_names = node->names;
      node->pending.clear();
      break;
    case CallKind::kRename: {
      const auto [target, target_name] = place_of(call.other);
      if (target == nullptr) impossible(call, "no such folder");
      if (target == folder) {
        change(*folder, {{{name, nullptr}, {target_name, node}}});
        break;
      }
      // One change per folder: file systems keep one of the two names; this keeps either, both or none.
      change(*target, {{{target_name, node}}});
      change(*folder, {{{name, nullptr}}});
      break;
    }
    case CallKind::kLink: {
      const auto [target, target_name] = place_of(call.other);
      if (target == nullptr) impossible(call, "no such folder");
      change(*target, {{{target_name, node}}});
      break;
    }
    case CallKind::kRemoveFile:
    case CallKind::kRemoveFolder:
      change(*folder, {{{name, nullptr}}});
      break;
    case CallKind::kSaid:
      break;
  }
}

CrashDisk::Folder CrashDisk::names_left(const Node& node, const Kept& kept) {
  Folder names = node.durable_names;
  for (size_t i = 0; i < node.pending.size(); ++i) {
    if (!kept(node, i)) continue;
    for (const auto& [name, child] : node.pending[i].names) {
      if (child == nullptr) {
        names.erase(name);
      } else {
        names[name] = child;
      }
    }
  }
  return names;
}

// kept null: the tree that programs see.
void CrashDisk::collect(const Node& node, const std::string& path, const Kept* kept, const OnlyNamed& only_named,
                        Tree& tree) {
  const bool content = !only_named(path);
  if (node.is_folder) {
    if (!path.empty()) tree[path + "/"];
    if (!content) return;
    for (const auto& [name, child] : kept == nullptr ? node.names : names_left(node, *kept)) {
      collect(*child, path.empty() ? name : path + "/" + name, kept, only_named, tree);
    }
    return;
  }
  if (!content) {
    tree[path];
    return;
  }
  std::string data = kept == nullptr ? node.data : node.durable_data;
  for (size_t i = 0; kept != nullptr && i < node.pending.size(); ++i) {
    if ((*kept)(node, i)) put(data, node.pending[i]);
  }
  tree[path] = std::move(data);
}

Tree CrashDisk::now() const {
  Tree tree;
  collect(
      *root_, "", nullptr, [](const std::string&) { return false; }, tree);
  return tree;
}

// Pending changes of all nodes that a crash can leave reachable by name.
std::vector<std::pair<const CrashDisk::Node*, size_t>> CrashDisk::pending() const {
  std::vector<std::pair<const Node*, size_t>> changes;
  std::set<const Node*> seen;
  const std::function<void(const Node&)> look = [&](const Node& node) {
    if (!seen.insert(&node).second) return;
    for (size_t i = 0; i < node.pending.size(); ++i) {
      changes.emplace_back(&node, i);
      for (const auto& [name, child] : node.pending[i].names) {
        if (child != nullptr) look(*child);
      }
    }
    for (const auto& [name, child] : node.durable_names) look(*child);
  };
  look(*root_);
  return changes;
}

void CrashDisk::crash(int limit, std::mt19937_64& random, const OnlyNamed& only_named,
                      const std::function<void(const Tree&)>& visit) const {
  const auto give = [&](const Kept& kept) {
    Tree tree;
    collect(*root_, "", &kept, only_named, tree);
    visit(tree);
  };
  give([](const Node&, size_t) { return false; });
  give([](const Node&, size_t) { return true; });
  give([](const Node& node, size_t) { return node.is_folder; });
  give([](const Node& node, size_t) { return !node.is_folder; });
  auto changes = pending();
  std::shuffle(changes.begin(), changes.end(), random);
  const size_t single = std::min(changes.size(), static_cast<size_t>(limit));
  for (size_t c = 0; c < single; ++c) {
    const Node* const of = changes[c].first;
    const size_t which = changes[c].second;
    const auto is_it = [&](const Node& node, size_t i) { return &node == of && i == which; };
    give([&](const Node& node, size_t i) { return !is_it(node, i); });
    give([&](const Node& node, size_t i) { return is_it(node, i); });
    // The data was lost, the names were kept.
    if (!of->is_folder) give([&](const Node& node, size_t i) { return node.is_folder || (&node == of && i != which); });
  }
  for (int set = 0; set < limit && changes.size() > 1; ++set) {
    std::set<std::pair<const Node*, size_t>> chosen;
    const auto share = random() % 4 + 1;  // out of five
    for (const auto& one : changes) {
      if (random() % 5 < share) chosen.insert(one);
    }
    give([&](const Node& node, size_t i) { return chosen.count({&node, i}) > 0; });
  }
}

}  // namespace ms::test
