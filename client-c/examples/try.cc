// try.cc: from C++: a lock that is only tried.
//
//   try ENDPOINTS              c++ try.cc $(pkg-config --cflags --libs holdfast)
#include <holdfast.h>
#include <holdfast_fence.h>

#include <iostream>
#include <memory>
#include <string>

int main(int argc, char **argv)
{
	hf_client_options options{};
	options.endpoints = argc > 1 ? argv[1] : "127.0.0.1:2379";
	hf_client *client_raw = nullptr;
	hf_code code = hf_client_new(&options, &client_raw);
	if (code != HF_OK) {
		std::cerr << "endpoints: " << hf_text(code) << "\n";
		return 1;
	}
	std::unique_ptr<hf_client, decltype(&hf_client_free)> client(client_raw, hf_client_free);
	hf_session *session = nullptr;
	code = hf_session_open(client.get(), nullptr, 10000, &session);
	if (code != HF_OK) {
		std::cerr << "session: " << hf_text(code) << "\n";
		return 1;
	}
	const std::string name = "example/try";
	hf_lock_options once{};
	once.mode = HF_SHARED;
	struct hf_lock *held = nullptr;
	code = hf_lock(session, {name.data(), name.size()}, &once, &held);
	std::cout << "try: " << hf_text(code) << "\n";
	if (code == HF_OK) {
		hf_fence_marks marks{};
		std::cout << "fence: " << (hf_lock_token(held) > marks.exclusive ? "let in" : "stale") << "\n";
		hf_unlock(held, 5000);
	}
	hf_session_close(session, 5000);
	return 0;
}
