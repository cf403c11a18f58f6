// Makes one forced tool call with each provider of the AI SDK, and requests the dispatch event.
// Prints a JSON line for each: counts of the stream's parts by type, and errors.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { jsonSchema, streamText, tool } from "ai";

const baseURL = process.argv[2];
const apiKey = "test";
const parameters = {
  type: "object",
  properties: { path: { type: "string", maxLength: 10 } },
  required: ["path"],
  additionalProperties: false,
};
const tools = { ls: tool({ description: "list files", inputSchema: jsonSchema(parameters) }) };
const openai = createOpenAI({ baseURL, apiKey });
const models = {
  messages: createAnthropic({ baseURL, apiKey })("weft-demo"),
  responses: openai.responses("weft-demo"),
  chat: openai.chat("weft-demo"),
};
for (const [api, model] of Object.entries(models)) {
  const stream = streamText({
    model,
    tools,
    toolChoice: "required",
    prompt: "List the files.",
    maxOutputTokens: 200,
    maxRetries: 0,
    headers: { "x-weft-tool-dispatch": "1" },
    onError: () => {},
  });
  const parts = {};
  const errors = [];
  for await (const part of stream.fullStream) {
    parts[part.type] = (parts[part.type] ?? 0) + 1;
    if (part.type === "error") errors.push(String(part.error));
  }
  console.log(JSON.stringify({ api, parts, errors }));
}
