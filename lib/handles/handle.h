// A handle: the address of a process, which host programs give to each other so that the processes
// can meet without a store of their own (tutti_comm_reconfigure).
//
//   magic (4 bytes), length of the whole (4), format (4), process (16)
//   version, job, address    texts: length (4), bytes
//   proof (16)               HMAC of all before it with the job's secret, shortened
//   checksum (8)             FNV-1a of all before it
//
// Every format begins with magic, length and format, and ends with the checksum.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace tutti {

struct Handle {
    static constexpr uint32_t magic = 0x48545554;  // "TUTH"
    static constexpr uint32_t format = 1;
    static constexpr std::size_t process_bytes = 16, proof_bytes = 16;
    static constexpr uint32_t max_version_bytes = 32, max_job_bytes = 512, max_address_bytes = 255;
    static constexpr std::size_t max_bytes = 1024;

    std::string process;  // random bytes: another process or rank has others
    std::string version;  // of tutti
    std::string job;
    std::string address;  // of the process's store, host:port
    std::string proof;

    /// Makes the proof with the secret. invalid: the job's name is too long.
    Result<> sign(const std::string& secret);
    Bytes encode() const;
    /// invalid: these bytes are no handle, or not all of one, or damaged. unsupported: its format
    /// is of another version. Checks neither job nor secret.
    static Result<Handle> decode(ByteView bytes);
    /// invalid: another job. auth: its process has another secret.
    Result<> check(const std::string& job, const std::string& secret) const;

    /// The name under which the process's store serves, so that no other process can be taken for
    /// it.
    std::string store_job() const;

private:
    Bytes body() const;
};

}  // namespace tutti
