#include "core/io/hdf5.h"

#include <hdf5.h>

#include <array>

#include "core/error.h"
#include "core/io/detail/placing_driver.h"
#include "core/io/detail/zstd_filter.h"
#include "core/io/file.h"

namespace ms::core {
namespace {

static_assert(sizeof(hid_t) == sizeof(int64_t));

// Owns an HDF5 identifier of any kind.
class Handle {
 public:
  Handle(hid_t id, herr_t (*closer)(hid_t)) : id_(id), closer_(closer) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) closer_(id_);
  }
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*closer_)(hid_t);
};

// Before the first use: no exit handler, which crashes on a file whose close has failed (HDF5 1.10); files are closed
// by their owners. And turns off HDF5's printing of its error stack to stderr, which is per thread.
void silence() {
  static const bool no_handler = H5dont_atexit() >= 0;
  (void)no_handler;
  static thread_local const bool done = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  (void)done;
}

std::string last_error() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
        if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;  // the innermost error
        return 0;
      },
      &text);
  H5Eclear2(H5E_DEFAULT);
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text.empty() ? "HDF5 gives no reason" : text;
}

hid_t access_properties() {
  const hid_t properties = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(properties, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
  H5Pset_alignment(properties, 65536, 4096);
  H5Pset_file_locking(properties, false, true);  // locking fails on some network file systems; writers have a lock file
  MS_CHECK(H5Pset_driver(properties, detail::placing_driver(), nullptr) >= 0, "HDF5 does not take our file driver");
  return properties;
}

// IEEE half: sign in bit 15, exponent in 10..14 with bias 15, mantissa in 0..9. h5py reads it as float16.
hid_t half_type() {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 15);
  return type;
}

hid_t file_type(DType dtype) {
  switch (dtype) {
    case DType::kFp32:
      return H5Tcopy(H5T_IEEE_F32LE);
    case DType::kFp64:
      return H5Tcopy(H5T_IEEE_F64LE);
    case DType::kFp16:
      return half_type();
    case DType::kBf16:
    case DType::kUInt16:
      return H5Tcopy(H5T_STD_U16LE);
    case DType::kInt8:
      return H5Tcopy(H5T_STD_I8LE);
    case DType::kUInt8:
    case DType::kBool:
      return H5Tcopy(H5T_STD_U8LE);
    case DType::kInt16:
      return H5Tcopy(H5T_STD_I16LE);
    case DType::kInt32:
      return H5Tcopy(H5T_STD_I32LE);
    case DType::kInt64:
      return H5Tcopy(H5T_STD_I64LE);
    default:
      throw Error(ErrorCode::kUnsupported, cat("native checkpoints do not support tensors of ", dtype_name(dtype)));
  }
}

std::optional<DType> dtype_of_type(hid_t type) {
  constexpr std::array kAll = {DType::kFp32,  DType::kFp64,  DType::kFp16,  DType::kUInt16, DType::kInt8,
                               DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64};
  for (const DType dtype : kAll) {
    const Handle candidate(file_type(dtype), H5Tclose);
    if (H5Tequal(candidate, type) > 0) return dtype;
  }
  return std::nullopt;
}

}  // namespace

void H5File::fail(const std::string& what) const {
  throw Error(writable_ ? ErrorCode::kIo : ErrorCode::kCorruptData, cat(path_, ": ", what, ": ", last_error()));
}

H5File H5File::create(const std::string& path) {
  silence();
  const Handle access(access_properties(), H5Pclose);
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation, false);
  const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access);
  if (id < 0) throw Error(ErrorCode::kIo, cat("cannot create ", path, ": ", last_error()));
  return H5File(id, true, path);
}

H5File H5File::open_write(const std::string& path) {
  silence();
  const Handle access(access_properties(), H5Pclose);
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDWR, access);
  if (id < 0) throw Error(ErrorCode::kIo, cat("cannot open ", path, " for writing: ", last_error()));
  return H5File(id, true, path);
}

H5File H5File::open_read(const std::string& path) {
  check_readable(path);
  silence();
  const Handle access(access_properties(), H5Pclose);
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
  if (id < 0) throw Error(ErrorCode::kCorruptData, cat(path, ": not a complete HDF5 file: ", last_error()));
  return H5File(id, false, path);
}

H5File::~H5File() {
  if (id_ < 0) return;
  silence();
  H5Fclose(id_);
}

void H5File::close() {
  silence();
  const hid_t id = id_;
  id_ = -1;
  if (id >= 0 && H5Fclose(id) < 0) fail("cannot close");
}

void H5File::create_group(const std::string& path) {
  silence();
  const Handle creation(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation, false);
  const Handle group(H5Gcreate2(id_, path.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT), H5Gclose);
  if (group < 0) fail(cat("cannot create group ", path));
}

int64_t H5File::create_dataset(const std::string& path, DType dtype, const Dims& shape) {
  silence();
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Handle space(
      dims.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
      H5Sclose);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_layout(creation, H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation, false);
  const Handle type(file_type(dtype), H5Tclose);
  const Handle dataset(H5Dcreate2(id_, path.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose);
  if (dataset < 0) fail(cat("cannot create dataset ", path));
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) fail(cat("dataset ", path, " has no allocated space in the file"));
  return static_cast<int64_t>(offset);
}

void H5File::create_chunked_dataset(const std::string& path, DType dtype, int64_t elements, int64_t chunk_elements) {
  silence();
  static const bool registered = H5Zregister(&detail::kZstdFilterClass) >= 0;
  if (!registered) fail("cannot register the zstd filter");
  const hsize_t dims[1] = {static_cast<hsize_t>(elements)}, chunk[1] = {static_cast<hsize_t>(chunk_elements)};
  const Handle space(H5Screate_simple(1, dims, nullptr), H5Sclose);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_chunk(creation, 1, chunk);
  H5Pset_shuffle(creation);
  const unsigned level = 1;  // for other programs that write to the dataset
  H5Pset_filter(creation, detail::kZstdFilter, H5Z_FLAG_OPTIONAL, 1, &level);
  H5Pset_alloc_time(creation, H5D_ALLOC_TIME_INCR);
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation, false);
  const Handle type(file_type(dtype), H5Tclose);
  const Handle dataset(H5Dcreate2(id_, path.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose);
  if (dataset < 0) fail(cat("cannot create dataset ", path));
}

H5Chunk H5File::place_chunk(const std::string& path, int64_t index, std::span<const std::byte> stored, bool raw) {
  silence();
  const Handle dataset(H5Dopen2(id_, path.c_str(), H5P_DEFAULT), H5Dclose);
  if (dataset < 0) fail(cat("no dataset ", path));
  const Handle creation(H5Dget_create_plist(dataset), H5Pclose);
  hsize_t chunk[1] = {0};
  H5Pget_chunk(creation, 1, chunk);
  const hsize_t at[1] = {static_cast<hsize_t>(index) * chunk[0]};
  const uint32_t skipped = raw ? 3 : 0;  // bit i: filter i was not applied
  {
    const detail::Placing placing(stored.data());
    if (H5Dwrite_chunk(dataset, H5P_DEFAULT, skipped, at, stored.size(), stored.data()) < 0) {
      fail(cat("cannot allocate chunk ", index, " of ", path));
    }
  }
  unsigned mask = 0;
  haddr_t offset = HADDR_UNDEF;
  hsize_t bytes = 0;
  if (H5Dget_chunk_info_by_coord(dataset, at, &mask, &offset, &bytes) < 0 || offset == HADDR_UNDEF ||
      bytes != stored.size() || mask != skipped) {
    fail(cat("chunk ", index, " of ", path, " is not at its allocated place"));
  }
  return {static_cast<int64_t>(offset), static_cast<int64_t>(bytes)};
}

void H5File::create_attribute(const std::string& object, const std::string& name, const std::string& text) {
  silence();
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, text.empty() ? 1 : text.size());
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(
      H5Acreate_by_name(id_, object.c_str(), name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose);
  if (attribute < 0 || H5Awrite(attribute, type, text.empty() ? "" : text.data()) < 0) {
    fail(cat("cannot write attribute ", name, " of ", object));
  }
}

namespace {

// An empty list (the [] shape of a scalar) becomes an empty attribute.
bool write_new_attribute(hid_t file, const std::string& object, const std::string& name, hid_t type, size_t count,
                         const void* data) {
  const hsize_t dims[1] = {count};
  const Handle space(count == 0 ? H5Screate(H5S_NULL) : H5Screate_simple(1, dims, nullptr), H5Sclose);
  const Handle attribute(
      H5Acreate_by_name(file, object.c_str(), name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose);
  return attribute >= 0 && (count == 0 || H5Awrite(attribute, type, data) >= 0);
}

}  // namespace

void H5File::create_attribute(const std::string& object, const std::string& name, std::span<const int64_t> values) {
  silence();
  if (!write_new_attribute(id_, object, name, H5T_STD_I64LE, values.size(), values.data())) {
    fail(cat("cannot write attribute ", name, " of ", object));
  }
}

void H5File::create_attribute(const std::string& object, const std::string& name, std::span<const uint64_t> values) {
  silence();
  if (!write_new_attribute(id_, object, name, H5T_STD_U64LE, values.size(), values.data())) {
    fail(cat("cannot write attribute ", name, " of ", object));
  }
}

void H5File::overwrite_attribute(const std::string& object, const std::string& name, std::span<const uint64_t> values) {
  silence();
  // Keep the object open: after H5Aopen_by_name alone, H5Awrite of 1.10.8 fails with "can't locate open attribute".
  const Handle owner(H5Oopen(id_, object.c_str(), H5P_DEFAULT), H5Oclose);
  const Handle attribute(H5Aopen(owner, name.c_str(), H5P_DEFAULT), H5Aclose);
  if (attribute < 0) fail(cat("cannot open attribute ", name, " of ", object));
  const Handle space(H5Aget_space(attribute), H5Sclose);
  MS_CHECK(H5Sget_simple_extent_npoints(space) == static_cast<hssize_t>(values.size()), object, ": ", name);
  if (!values.empty() && H5Awrite(attribute, H5T_NATIVE_UINT64, values.data()) < 0) {
    fail(cat("cannot write attribute ", name, " of ", object));
  }
}

uint64_t H5File::file_bytes() const {
  hsize_t size = 0;
  if (H5Fget_filesize(id_, &size) < 0) fail("cannot get the size of the file");
  return size;
}

std::optional<H5DatasetInfo> H5File::dataset(const std::string& path) const {
  silence();
  const Handle dataset(H5Dopen2(id_, path.c_str(), H5P_DEFAULT), H5Dclose);
  if (dataset < 0) return std::nullopt;
  H5DatasetInfo info;
  const Handle type(H5Dget_type(dataset), H5Tclose);
  const Handle space(H5Dget_space(dataset), H5Sclose);
  const auto dtype = dtype_of_type(type);
  const int axes = H5Sget_simple_extent_ndims(space);
  if (!dtype || axes < 0 || axes > static_cast<int>(Dims::kMaxAxes)) {
    fail(cat("dataset ", path, " has a type or shape that checkpoints do not use"));
  }
  info.dtype = *dtype;
  std::vector<hsize_t> dims(static_cast<size_t>(axes));
  if (axes > 0) H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  info.shape.assign(dims.begin(), dims.end());
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset != HADDR_UNDEF) info.offset = static_cast<int64_t>(offset);
  return info;
}

std::optional<std::vector<uint64_t>> H5File::attribute_values(const std::string& object,
                                                              const std::string& name) const {
  silence();
  const Handle attribute(H5Aopen_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (attribute < 0) return std::nullopt;
  const Handle type(H5Aget_type(attribute), H5Tclose);
  const Handle space(H5Aget_space(attribute), H5Sclose);
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  // The attribute's declared size may be anything, but its values cannot exceed the file.
  if (H5Tget_class(type) != H5T_INTEGER || count < 0 ||
      static_cast<hsize_t>(count) > file_bytes() / H5Tget_size(type)) {
    fail(cat("attribute ", name, " of ", object, " is not a list of integers"));
  }
  std::vector<uint64_t> values(static_cast<size_t>(count));
  const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
  if (count > 0 && H5Aread(attribute, is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64, values.data()) < 0) {
    fail(cat("cannot read attribute ", name, " of ", object));
  }
  return values;
}

std::optional<std::string> H5File::attribute_text(const std::string& object, const std::string& name) const {
  silence();
  const Handle attribute(H5Aopen_by_name(id_, object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (attribute < 0) return std::nullopt;
  const Handle type(H5Aget_type(attribute), H5Tclose);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0) {
    fail(cat("attribute ", name, " of ", object, " is not a fixed-length string"));
  }
  const hsize_t size = H5Aget_storage_size(attribute);
  if (size > file_bytes() || size < H5Tget_size(type)) fail(cat("attribute ", name, " of ", object, " is truncated"));
  std::string text(static_cast<size_t>(size), '\0');
  if (H5Aread(attribute, type, text.data()) < 0) {
    fail(cat("cannot read attribute ", name, " of ", object));
  }
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

}  // namespace ms::core
