// A handler in Node: books a slot for each event, and recognises an Idempotency-Key it has seen.
// The service calls it; it needs no oncegate library.
const http = require("node:http");

const slots = new Map();

http
  .createServer((request, response) => {
    const key = request.headers["idempotency-key"];
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      if (request.method === "GET") {
        return answer(response, 200, { booked: slots.size });
      }
      if (!slots.has(key)) {
        slots.set(key, { slot: `S-${slots.size + 1}`, container: JSON.parse(body).equipment_number });
      }
      answer(response, 200, slots.get(key));
    });
  })
  .listen(Number(process.env.PORT), "127.0.0.1");

function answer(response, status, value) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}
