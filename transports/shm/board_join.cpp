#include "transports/shm/board_join.h"

#include <algorithm>

#include "base/log.h"
#include "net/acceptor.h"
#include "net/socket.h"

namespace tutti::shm {
namespace {

constexpr int row_timeout_ms = 1000;

}  // namespace

Result<BoardPlace> BoardHost::place(Rank rank) {
    const std::lock_guard lock(mutex_);
    if (!board_) {
        const auto ranks = static_cast<uint32_t>(std::max(job_size_, Rank{1}));
        TUTTI_ASSIGN(Board made, Board::make(std::min(ranks, board_most_rows)));
        board_ = std::make_shared<Board>(std::move(made));
    }
    const auto next = static_cast<uint32_t>(rows_.size());
    if (next == board_->rows() && !rows_.contains(rank))
        return fail(Code::unsupported, "all {} rows of the host's board are taken", next)
            .advice("start fewer ranks on a host, or accept that a death is noticed later");
    return BoardPlace{board_, rows_.try_emplace(rank, next).first->second};
}

void BoardHost::answer(UniqueFd socket, const ShmHello& hello) {
    if (hello.rank < 0 || hello.rank >= job_size_)
        return log::warn(fail(Code::auth, "shm: refused a row of the board to rank {} of {}",
                              hello.rank, job_size_)
                             .advice("end the processes of earlier runs of this job, and give all "
                                     "ranks the same TUTTI_SIZE"));
    const auto given = place(hello.rank);
    BoardAnswer reply;
    int fd = -1;
    if (given) {
        reply.row = given->row;
        reply.rows = given->board->rows();
        fd = given->board->fd();
    } else {
        reply.code = given.error().code;
        reply.text = given.error().message;
    }
    const auto sent = net::send_fds(socket.get(), {&fd, given ? std::size_t{1} : std::size_t{0}},
                                    encode(reply), Deadline::after_ms(row_timeout_ms));
    if (!sent)
        log::debug("shm: giving rank {} a row of the board: {}", hello.rank, sent.error().message);
}

Result<BoardPlace> ask_for_row(Rank rank, const PeerAddress& leader, const net::AuthKey& key,
                               Deadline deadline) {
    const auto doing = [&] {
        return fmt::format("shm: asking rank {} for its board", leader.rank);
    };
    const Bytes hello = encode(ShmHello{.kind = HelloKind::board, .rank = rank});
    UniqueFd socket;
    for (net::Redial redial;;) {
        auto met = net::connect_unix(leader.address, {.deadline = deadline});
        if (!met) return wrap(std::move(met).error(), doing());
        socket = std::move(*met);
        const auto asked = net::introduce(socket.get(), key, hello, deadline);
        if (asked) break;
        if (!redial.again(asked.error(), deadline)) return wrap(asked.error(), doing());
    }
    auto message = net::recv_fds(socket.get(), max_frame_bytes, deadline);
    if (!message) return wrap(std::move(message).error(), doing());
    TUTTI_ASSIGN(const BoardAnswer answer, decode_board_answer(message->body));
    if (answer.code != Code::ok) return fail(answer.code, "{}: {}", doing(), answer.text);
    if (message->fds.size() != 1)
        return fail(Code::invalid, "{}: it sent {} file descriptors instead of its memory", doing(),
                    message->fds.size())
            .advice(same_version);
    auto board = Board::map(std::move(message->fds[0]), answer.rows);
    if (!board) return wrap(std::move(board).error(), doing());
    return BoardPlace{std::make_shared<Board>(std::move(*board)), answer.row};
}

}  // namespace tutti::shm
