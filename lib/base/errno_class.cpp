#include "base/errno_class.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace tutti {
namespace {

struct ErrnoRow {
    int sys_errno;
    ErrnoClass errno_class;
};
constexpr ErrnoRow table[] = {
    {EAGAIN, ErrnoClass::again},      {EWOULDBLOCK, ErrnoClass::again},
    {EINTR, ErrnoClass::again},       {ENOMEM, ErrnoClass::shortage},
    {ENOBUFS, ErrnoClass::shortage},  {EMFILE, ErrnoClass::shortage},
    {ENFILE, ErrnoClass::shortage},   {ETOOMANYREFS, ErrnoClass::shortage},
    {EPIPE, ErrnoClass::peer},        {ECONNRESET, ErrnoClass::peer},
    {ECONNREFUSED, ErrnoClass::peer}, {ECONNABORTED, ErrnoClass::peer},
    {ETIMEDOUT, ErrnoClass::peer},    {ENOTCONN, ErrnoClass::peer},
    {ESHUTDOWN, ErrnoClass::peer},    {EHOSTUNREACH, ErrnoClass::peer},
    {EHOSTDOWN, ErrnoClass::peer},    {ENETUNREACH, ErrnoClass::peer},
    {ENETDOWN, ErrnoClass::peer},     {ENETRESET, ErrnoClass::peer},
};

}  // namespace

ErrnoClass classify_errno(int sys_errno) {
    const auto* row = std::find_if(std::begin(table), std::end(table),
                                   [&](const ErrnoRow& r) { return r.sys_errno == sys_errno; });
    return row == std::end(table) ? ErrnoClass::own : row->errno_class;
}

}  // namespace tutti
