#include "handles/handle.h"

#include <fmt/format.h>

#include <array>

#include "base/hash.h"
#include "base/version.h"
#include "net/auth.h"

namespace tutti {
namespace {

constexpr std::size_t head_bytes = 12;  // magic, length, format
constexpr std::size_t checksum_bytes = 8;
constexpr const char* pass_it_whole =
    "pass the bytes that tutti_comm_get_handle wrote in that process, all of them and unchanged";

Bytes with_checksum(Bytes text) {
    ByteWriter checksum;
    checksum.put(hash_of(as_text(text)));
    const Bytes last = checksum.take();
    text.insert(text.end(), last.begin(), last.end());
    return text;
}

// Checks the fields that every format has, and returns the format.
Result<uint32_t> check_frame(ByteView bytes) {
    ByteReader reader(bytes);
    const auto magic = reader.get<uint32_t>();
    const auto length = reader.get<uint32_t>();
    const auto format = reader.get<uint32_t>();
    if (bytes.size() >= sizeof magic && magic != Handle::magic)
        return fail(Code::invalid, "it is no handle of tutti ({} bytes)", bytes.size())
            .advice(pass_it_whole);
    if (!reader.ok() || bytes.size() < length)
        return fail(Code::invalid, "it is cut short: {} bytes are left{}", bytes.size(),
                    reader.ok() ? fmt::format(" of {}", length) : std::string())
            .advice(pass_it_whole);
    if (bytes.size() > length || length < head_bytes + checksum_bytes)
        return fail(Code::invalid, "it has {} bytes, but says that it has {}", bytes.size(), length)
            .advice(pass_it_whole);
    const ByteView checked = bytes.first(length - checksum_bytes);
    ByteReader checksum(bytes.subspan(checked.size()));
    if (checksum.get<uint64_t>() != hash_of(as_text(checked)))
        return fail(Code::invalid, "it is damaged: its checksum is wrong").advice(pass_it_whole);
    return format;
}

template <std::size_t bytes>
std::string get_fixed(ByteReader& reader) {
    const auto value = reader.get<std::array<char, bytes>>();
    return {value.data(), value.size()};
}

void put_fixed(ByteWriter& writer, std::string_view bytes) {
    for (const char c : bytes) writer.put(c);
}

Result<std::string> proof_of(const std::string& secret, const std::string& job, ByteView body) {
    TUTTI_ASSIGN(Bytes proof, net::sign({secret, "handle/" + job}, body));
    return std::string(as_text(proof).substr(0, Handle::proof_bytes));
}

}  // namespace

Bytes Handle::body() const {
    const std::size_t texts = version.size() + job.size() + address.size() + 3 * sizeof(uint32_t);
    ByteWriter writer;
    writer.put(magic)
        .put(static_cast<uint32_t>(head_bytes + process_bytes + texts + proof_bytes +
                                   checksum_bytes))
        .put(format);
    put_fixed(writer, process);
    writer.put_text(version).put_text(job).put_text(address);
    return writer.take();
}

Result<> Handle::sign(const std::string& secret) {
    if (job.size() > max_job_bytes)
        return fail(Code::invalid, "the job's name has {} bytes; a handle holds at most {}",
                    job.size(), max_job_bytes)
            .advice("set TUTTI_JOB to a shorter name");
    TUTTI_ASSIGN(proof, proof_of(secret, job, body()));
    return {};
}

Bytes Handle::encode() const {
    Bytes out = body();
    const ByteView bytes = as_bytes(proof);
    out.insert(out.end(), bytes.begin(), bytes.end());
    return with_checksum(std::move(out));
}

Result<Handle> Handle::decode(ByteView bytes) {
    TUTTI_ASSIGN(const uint32_t found, check_frame(bytes));
    if (found != format)
        return fail(Code::unsupported,
                    "it has format {}, of another version of tutti; this is version {}, which "
                    "reads format {}",
                    found, tutti::version(), format)
            .advice("install the same version of tutti for all processes");
    ByteReader reader(bytes.subspan(head_bytes));
    Handle handle;
    handle.process = get_fixed<process_bytes>(reader);
    handle.version = reader.get_text(max_version_bytes);
    handle.job = reader.get_text(max_job_bytes);
    handle.address = reader.get_text(max_address_bytes);
    handle.proof = get_fixed<proof_bytes>(reader);
    reader.get<uint64_t>();
    if (!reader.at_end())
        return fail(Code::invalid, "its fields do not fit its length of {} bytes", bytes.size())
            .advice(pass_it_whole);
    return handle;
}

Result<> Handle::check(const std::string& own_job, const std::string& secret) const {
    if (job != own_job)
        return fail(Code::invalid, "it is of job '{}', but this process is in job '{}'", job,
                    own_job)
            .advice("set TUTTI_JOB to the same name in all processes");
    TUTTI_ASSIGN(const std::string expected, proof_of(secret, job, body()));
    if (!net::equal_in_constant_time(as_bytes(proof), as_bytes(expected)))
        return fail(Code::auth, "its process has another secret (it runs version {} of tutti)",
                    version)
            .advice("compare TUTTI_SECRET, which must be the same in all processes");
    return {};
}

std::string Handle::store_job() const {
    std::string name = job + "/process ";
    for (const char byte : process)
        name += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    return name;
}

}  // namespace tutti
