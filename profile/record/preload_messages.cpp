// Point-to-point messages and requests (MPI-3.1 chapter 3).
#include <algorithm>
#include <vector>

#include "profile/record/preload.h"

namespace {

using namespace ms::profile;
using ms::core::trace::now_ns;

MpiOperation send_of(int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
  return {"send", comm, count, count, type, peer, tag};
}
MpiOperation receive_of(int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
  return {"recv", comm, count, count, type, peer, tag};
}

// A call that completes some of these requests. Statuses are written to the caller's array, or to our own if he passes
// MPI_STATUS(ES)_IGNORE: only the status holds the sender and size of a message.
class Completing {
 public:
  Completing(const char* name, int count, const MPI_Request* requests, MPI_Status* statuses)
      : call_(name), statuses_(statuses) {
    if (!call_.records()) return;
    before_.assign(requests, requests + count);
    const bool none = statuses == MPI_STATUSES_IGNORE || statuses == MPI_STATUS_IGNORE;
    if (!none) return;
    own_.resize(std::max<size_t>(1, before_.size()));
    statuses_ = own_.data();
  }
  MPI_Status* statuses() { return statuses_; }
  void set_fruitless() { call_.set_fruitless(true); }
  // status: index of the status; request: index in the given array.
  void complete(int request, int status) const {
    if (!call_.records() || request == MPI_UNDEFINED) return;
    MpiRecording::instance().complete(before_[static_cast<size_t>(request)], statuses_ + status, now_ns());
  }

 private:
  MpiCall call_;
  std::vector<MPI_Request> before_;
  std::vector<MPI_Status> own_;
  MPI_Status* statuses_;
};

}  // namespace

#define MS_MPI_SEND(name)                                                                         \
  MS_MPI name(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) { \
    return recorded(#name, send_of(count, type, peer, tag, comm),                                 \
                    [&] { return P##name(data, count, type, peer, tag, comm); });                 \
  }
#define MS_MPI_POST_SEND(name, persistent)                                                                           \
  MS_MPI name(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* made) { \
    return posted(                                                                                                   \
        #name, send_of(count, type, peer, tag, comm), made,                                                          \
        [&] { return P##name(data, count, type, peer, tag, comm, made); }, persistent);                              \
  }

MS_MPI_SEND(MPI_Send)
MS_MPI_SEND(MPI_Bsend)
MS_MPI_SEND(MPI_Ssend)
MS_MPI_SEND(MPI_Rsend)
MS_MPI_POST_SEND(MPI_Isend, false)
MS_MPI_POST_SEND(MPI_Ibsend, false)
MS_MPI_POST_SEND(MPI_Issend, false)
MS_MPI_POST_SEND(MPI_Irsend, false)
MS_MPI_POST_SEND(MPI_Send_init, true)
MS_MPI_POST_SEND(MPI_Bsend_init, true)
MS_MPI_POST_SEND(MPI_Ssend_init, true)
MS_MPI_POST_SEND(MPI_Rsend_init, true)

MS_MPI MPI_Recv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Status* status) {
  MPI_Status own;
  MPI_Status* const seen = status == MPI_STATUS_IGNORE ? &own : status;
  MpiCall call("MPI_Recv", receive_of(count, type, peer, tag, comm));
  const int result = PMPI_Recv(data, count, type, peer, tag, comm, seen);
  if (result == MPI_SUCCESS) call.set_status(seen);
  return result;
}

MS_MPI MPI_Irecv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* made) {
  return posted("MPI_Irecv", receive_of(count, type, peer, tag, comm), made,
                [&] { return PMPI_Irecv(data, count, type, peer, tag, comm, made); });
}

MS_MPI MPI_Recv_init(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* made) {
  return posted(
      "MPI_Recv_init", receive_of(count, type, peer, tag, comm), made,
      [&] { return PMPI_Recv_init(data, count, type, peer, tag, comm, made); }, true);
}

namespace {

// Send and receive in one call: both last as long as the call.
template <class Body>
int exchanged(const char* name, const MpiOperation& send, const MpiOperation& receive, MPI_Status* status, Body body) {
  MPI_Status own;
  MPI_Status* const seen = status == MPI_STATUS_IGNORE ? &own : status;
  MpiCall call(name, receive);
  const int result = body(seen);
  if (!call.records()) return result;
  if (result == MPI_SUCCESS) call.set_status(seen);
  MpiRecording::instance().add_operation(send, call.start_ns(), now_ns(), nullptr, true);
  return result;
}

}  // namespace

MS_MPI MPI_Sendrecv(const void* out, int out_count, MPI_Datatype out_type, int to, int out_tag, void* in, int in_count,
                    MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status* status) {
  return exchanged("MPI_Sendrecv", send_of(out_count, out_type, to, out_tag, comm),
                   receive_of(in_count, in_type, from, in_tag, comm), status, [&](MPI_Status* seen) {
                     return PMPI_Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag,
                                          comm, seen);
                   });
}

MS_MPI MPI_Sendrecv_replace(void* data, int count, MPI_Datatype type, int to, int out_tag, int from, int in_tag,
                            MPI_Comm comm, MPI_Status* status) {
  return exchanged("MPI_Sendrecv_replace", send_of(count, type, to, out_tag, comm),
                   receive_of(count, type, from, in_tag, comm), status, [&](MPI_Status* seen) {
                     return PMPI_Sendrecv_replace(data, count, type, to, out_tag, from, in_tag, comm, seen);
                   });
}

MS_MPI_CALL(MPI_Probe, (int peer, int tag, MPI_Comm comm, MPI_Status* status), (peer, tag, comm, status))

MS_MPI MPI_Iprobe(int peer, int tag, MPI_Comm comm, int* found, MPI_Status* status) {
  MpiCall call("MPI_Iprobe");
  const int result = PMPI_Iprobe(peer, tag, comm, found, status);
  call.set_fruitless(result == MPI_SUCCESS && *found == 0);
  return result;
}

MS_MPI MPI_Start(MPI_Request* request) {
  const MpiCall call("MPI_Start");
  if (call.records()) MpiRecording::instance().start(*request, call.start_ns());
  return PMPI_Start(request);
}

MS_MPI MPI_Startall(int count, MPI_Request* requests) {
  const MpiCall call("MPI_Startall");
  for (int i = 0; call.records() && i < count; ++i) MpiRecording::instance().start(requests[i], call.start_ns());
  return PMPI_Startall(count, requests);
}

MS_MPI MPI_Wait(MPI_Request* request, MPI_Status* status) {
  Completing call("MPI_Wait", 1, request, status);
  const int result = PMPI_Wait(request, call.statuses());
  if (result == MPI_SUCCESS) call.complete(0, 0);
  return result;
}

MS_MPI MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  Completing call("MPI_Test", 1, request, status);
  const int result = PMPI_Test(request, flag, call.statuses());
  if (result != MPI_SUCCESS) return result;
  *flag != 0 ? call.complete(0, 0) : call.set_fruitless();
  return result;
}

MS_MPI MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  Completing call("MPI_Waitall", count, requests, statuses);
  const int result = PMPI_Waitall(count, requests, call.statuses());
  for (int i = 0; result == MPI_SUCCESS && i < count; ++i) call.complete(i, i);
  return result;
}

MS_MPI MPI_Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  Completing call("MPI_Testall", count, requests, statuses);
  const int result = PMPI_Testall(count, requests, flag, call.statuses());
  if (result != MPI_SUCCESS) return result;
  if (*flag == 0) call.set_fruitless();
  for (int i = 0; *flag != 0 && i < count; ++i) call.complete(i, i);
  return result;
}

MS_MPI MPI_Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
  Completing call("MPI_Waitany", count, requests, status);
  const int result = PMPI_Waitany(count, requests, index, call.statuses());
  if (result == MPI_SUCCESS) call.complete(*index, 0);
  return result;
}

MS_MPI MPI_Testany(int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
  Completing call("MPI_Testany", count, requests, status);
  const int result = PMPI_Testany(count, requests, index, flag, call.statuses());
  if (result != MPI_SUCCESS) return result;
  *flag != 0 ? call.complete(*index, 0) : call.set_fruitless();
  return result;
}

MS_MPI MPI_Waitsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  Completing call("MPI_Waitsome", count, requests, statuses);
  const int result = PMPI_Waitsome(count, requests, done, indices, call.statuses());
  for (int i = 0; result == MPI_SUCCESS && *done != MPI_UNDEFINED && i < *done; ++i) call.complete(indices[i], i);
  return result;
}

MS_MPI MPI_Testsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  Completing call("MPI_Testsome", count, requests, statuses);
  const int result = PMPI_Testsome(count, requests, done, indices, call.statuses());
  if (result == MPI_SUCCESS && *done == 0) call.set_fruitless();
  for (int i = 0; result == MPI_SUCCESS && *done != MPI_UNDEFINED && i < *done; ++i) call.complete(indices[i], i);
  return result;
}

MS_MPI MPI_Request_free(MPI_Request* request) {
  const MpiCall call("MPI_Request_free");
  if (call.records()) MpiRecording::instance().forget_request(*request);
  return PMPI_Request_free(request);
}
