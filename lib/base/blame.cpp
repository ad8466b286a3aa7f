#include "base/blame.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace tutti {
namespace {

struct Row {
    int sys_errno;
    Blame blame;
};
constexpr Row table[] = {
    {EAGAIN, Blame::again},      {EWOULDBLOCK, Blame::again},     {EINTR, Blame::again},
    {ENOMEM, Blame::shortage},   {ENOBUFS, Blame::shortage},      {EMFILE, Blame::shortage},
    {ENFILE, Blame::shortage},   {ETOOMANYREFS, Blame::shortage}, {EPIPE, Blame::peer},
    {ECONNRESET, Blame::peer},   {ECONNREFUSED, Blame::peer},     {ECONNABORTED, Blame::peer},
    {ETIMEDOUT, Blame::peer},    {ENOTCONN, Blame::peer},         {ESHUTDOWN, Blame::peer},
    {EHOSTUNREACH, Blame::peer}, {EHOSTDOWN, Blame::peer},        {ENETUNREACH, Blame::peer},
    {ENETDOWN, Blame::peer},     {ENETRESET, Blame::peer},
};

}  // namespace

Blame blame_of(int sys_errno) {
    const auto* row = std::find_if(std::begin(table), std::end(table),
                                   [&](const Row& r) { return r.sys_errno == sys_errno; });
    return row == std::end(table) ? Blame::own : row->blame;
}

}  // namespace tutti
